//! Listeners and connections: limits, timeouts, and an orderly end.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::TokioIo,
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, watch},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, ServerConnection},
    server::TlsStream,
};

use super::{
    Service,
    places::{Place, Places},
    stream::{Socket, Watched},
};

/// What one client, and all of them together, may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections; one more takes the place of the one that has been idle longest.
    pub connections: usize,
    /// For the head of a request, from the moment that the connection waits for one.
    pub head: Duration,
    /// Bytes of a request's head, and of what a connection buffers.
    pub head_bytes: usize,
    /// For a TLS handshake.
    pub handshake: Duration,
    /// For the client to take some more of an answer.
    pub write: Duration,
    /// For the client to take all of it.
    pub answer: Duration,
    /// For answers under way when the server ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 256,
            head: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            handshake: Duration::from_secs(10),
            write: Duration::from_secs(10),
            answer: Duration::from_secs(60),
            grace: Duration::from_secs(1),
        }
    }
}

/// How often it is looked whose time is over.
const TICK: Duration = Duration::from_secs(1);
/// Connections without a place that are told so; more are just closed.
const TURNED_AWAY: usize = 32;
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Serves on every listener until `stop` is set or dropped, then lets answers under way finish.
pub async fn serve(
    listeners: Vec<TcpListener>,
    service: Service,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    let places = Places::new(limits);
    let turning_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let mut accepting = JoinSet::new();
    let (accepted, mut streams) = mpsc::channel(1);
    for listener in listeners {
        let accepted = accepted.clone();
        accepting.spawn(async move { while accepted.send(accept(&listener).await).await.is_ok() {} });
    }
    drop(accepted);

    let mut stopped = pin!(stop.wait_for(|&stop| stop));
    let mut tick = interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (stream, from) = tokio::select! {
            _ = &mut stopped => break,
            _ = tick.tick() => {
                places.end_late();
                continue;
            }
            Some(stream) = streams.recv() => stream,
            else => break,
        };
        let Some((place, lost)) = places.take() else {
            if let Ok(permit) = Arc::clone(&turning_away).try_acquire_owned() {
                tokio::spawn(async move {
                    turn_away(stream, TOO_MANY).await;
                    drop(permit);
                });
            }
            continue;
        };
        let connection = Connection {
            service: service.clone(),
            limits,
            from: from.ip(),
            place,
            graceful: graceful.watcher(),
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = lost => {}
                () = connection.serve(stream) => {}
            }
        });
    }
    drop(streams);
    accepting.shutdown().await;
    places.end_waiting();
    let _ = timeout(limits.grace, graceful.shutdown()).await;
}

/// The next connection. An error is the client's (it hung up) or passes (no file descriptor is free).
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

/// A connection that has a place.
struct Connection {
    service: Service,
    limits: Limits,
    from: IpAddr,
    place: Place,
    graceful: Watcher,
}

impl Connection {
    /// What goes wrong on a connection is the client's doing, and its alone to know.
    async fn serve(self, stream: TcpStream) {
        match self.service.access().await.tls.clone() {
            None => self.answer(stream).await,
            Some(tls) => match timeout(self.limits.handshake, secured(stream, tls, self.limits)).await {
                Ok(Ok(Secured::Yes(stream))) => self.answer(*stream).await,
                Ok(Ok(Secured::PlainHttp(stream))) => turn_away(stream, PLAIN_HTTP).await,
                Ok(Err(_)) | Err(_) => {}
            },
        }
    }

    async fn answer<S: Socket>(self, stream: S) {
        let Self { service, limits, from, place, graceful } = self;
        let mut builder = http1::Builder::new();
        // How long a head may take is known to the place.
        builder.header_read_timeout(None).max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes);
        let connection = builder.serve_connection(
            TokioIo::new(Watched::new(stream, place.clone())),
            service_fn(move |request| {
                place.answering();
                let service = service.clone();
                async move { service.answer_to(request, from).await }
            }),
        );
        let _ = graceful.watch(connection).await;
    }
}

enum Secured {
    Yes(Box<TlsStream<TcpStream>>),
    /// What came is HTTP.
    PlainHttp(TcpStream),
}

async fn secured(stream: TcpStream, tls: Arc<ServerConfig>, limits: Limits) -> io::Result<Secured> {
    let mut first = [0];
    // A handshake begins with the number 22, every method of HTTP with a letter.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        return Ok(Secured::PlainHttp(stream));
    }
    let limit_buffers = |tls: &mut ServerConnection| tls.set_buffer_limit(Some(limits.head_bytes));
    let stream = TlsAcceptor::from(tls).accept_with(stream, limit_buffers).await?;
    Ok(Secured::Yes(Box::new(stream)))
}

const TOO_MANY: &str = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n\
                        Content-Length: 21\r\n\r\ntoo many connections\n";

const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 63\r\n\r\n\
                          this is an HTTPS server and got plain HTTP: begin with https://\n";

async fn turn_away(mut stream: TcpStream, answer: &str) {
    let answered = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Whatever is left unread when the socket is closed would take the answer away from the client.
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), answered).await;
}
