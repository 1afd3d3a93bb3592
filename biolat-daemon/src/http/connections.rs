//! Listeners and connections: limits, timeouts, and an orderly end.

use std::{io, pin::pin, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_io_timeout::TimeoutStream;

use super::Service;

/// What one client, and all of them together, may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; one more is told to come back later.
    pub connections: usize,
    /// For the head of a request, from the moment that the connection waits for one.
    pub head: Duration,
    /// Bytes of a request's head.
    pub head_bytes: usize,
    /// For the client to take some more of an answer.
    pub write: Duration,
    /// For answers under way when the server ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            write: Duration::from_secs(10),
            grace: Duration::from_secs(1),
        }
    }
}

/// Serves on every listener until `stop` is set or dropped, then lets answers under way finish.
pub async fn serve(
    listeners: Vec<TcpListener>,
    service: Service,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head).max_header_size(limits.head_bytes);
    let free = Arc::new(Semaphore::new(limits.connections));
    let mut accepting = JoinSet::new();
    let (accepted, mut streams) = tokio::sync::mpsc::channel(1);
    for listener in listeners {
        let accepted = accepted.clone();
        accepting.spawn(async move { while accepted.send(accept(&listener).await).await.is_ok() {} });
    }
    drop(accepted);

    let mut stopped = pin!(stop.wait_for(|&stop| stop));
    loop {
        let stream = tokio::select! {
            _ = &mut stopped => break,
            Some(stream) = streams.recv() => stream,
            else => break,
        };
        let Ok(permit) = Arc::clone(&free).try_acquire_owned() else {
            tokio::spawn(turn_away(stream));
            continue;
        };
        let service = service.clone();
        let connection = builder.serve_connection(
            TokioIo::new(Box::pin(patient(stream, limits.write))),
            service_fn(move |request| {
                let service = service.clone();
                async move { service.answer(request).await }
            }),
        );
        let watched = graceful.watch(connection);
        tokio::spawn(async move {
            // What goes wrong on a connection is the client's doing, and its alone to know.
            let _ = watched.await;
            drop(permit);
        });
    }
    drop(streams);
    accepting.shutdown().await;
    let _ = timeout(limits.grace, graceful.shutdown()).await;
}

/// The next connection. An error is the client's (it hung up) or passes (no file descriptor is free).
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    }
}

/// A stream that gives up on a client which does not read its answer.
fn patient(stream: TcpStream, write: Duration) -> TimeoutStream<TcpStream> {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(write));
    stream
}

async fn turn_away(mut stream: TcpStream) {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 21\r\n\r\n\
                   too many connections\n";
    let answered = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // Whatever is left unread when the socket is closed would take the answer away from the client.
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), answered).await;
}
