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
use socket2::SockRef;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{mpsc, watch},
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
    connection_slots::{ConnectionSlot, ConnectionSlots},
    tracked_stream::{Socket, TrackedStream},
};
use crate::process;

/// What one client, and all of them together, may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections, if the process may have twice as many files; one more takes the slot of another one.
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
    /// Streams of events, if they are no more than an eighth of the connections.
    pub streams: usize,
    /// The longest that one of them says nothing.
    pub heartbeat: Duration,
    /// The longest that one of them lives; its client makes another one.
    pub stream: Duration,
    /// For answers under way when the server ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self::of_interval(Duration::from_secs(5))
    }
}

impl Limits {
    /// For snapshots that are this far apart. Who is slow to take an answer keeps the figures of an old one in memory: not
    /// those of many.
    #[must_use]
    pub fn of_interval(interval: Duration) -> Self {
        let answer = (8 * interval).clamp(Duration::from_secs(2), Duration::from_secs(15));
        Self {
            connections: 256,
            head: Duration::from_secs(30),
            head_bytes: 16 * 1024,
            handshake: Duration::from_secs(10),
            write: Duration::from_secs(10),
            answer,
            streams: 32,
            heartbeat: Duration::from_secs(15),
            stream: Duration::from_secs(3600),
            grace: Duration::from_secs(1),
        }
    }
}

/// What the kernel may keep of a connection, received and not read, or written and not taken; else it is megabytes.
const KERNEL_BUFFERS: [usize; 2] = [16 << 10, 64 << 10];
/// How often it is looked whose time is over.
const TICK: Duration = Duration::from_secs(1);
/// After a connection could not be accepted.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Serves on every listener until `stop` is set or dropped, then lets answers under way finish.
pub async fn serve(
    listeners: Vec<TcpListener>,
    service: Service,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    // Where few files are allowed, half of them are for the rest of the process.
    let files = usize::try_from(process::max_fds()).unwrap_or(usize::MAX);
    let connections = limits.connections.min(files / 2);
    let streams = limits.streams.min(connections.div_ceil(8));
    let limits = Limits { connections, streams, ..limits };
    let slots = ConnectionSlots::new(limits);
    let mut accepting = JoinSet::new();
    let (accepted, mut streams) = mpsc::channel(1);
    for listener in listeners {
        limit_kernel(&listener, limits);
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
                slots.close_overdue();
                continue;
            }
            Some(stream) = streams.recv() => stream,
            else => break,
        };
        let (slot, lost) = slots.acquire(from.ip());
        let connection = Connection {
            service: service.clone(),
            limits,
            from: from.ip(),
            slot,
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
    slots.shut_down();
    let _ = timeout(limits.grace, graceful.shutdown()).await;
}

/// What it buffers, and how long it waits for a client that has gone without a word: a stream's, as any other has to take some
/// of its answer soon. Connections inherit it.
fn limit_kernel(listener: &TcpListener, limits: Limits) {
    let socket = SockRef::from(listener);
    let [received, written] = KERNEL_BUFFERS;
    let limited = socket
        .set_recv_buffer_size(received)
        .and_then(|()| socket.set_send_buffer_size(written))
        .and_then(|()| socket.set_tcp_user_timeout(Some(limits.write)));
    if let Err(error) = limited {
        log::warn!("cannot limit what the kernel does for connections: {error}");
    }
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

/// A connection that has a slot.
struct Connection {
    service: Service,
    limits: Limits,
    from: IpAddr,
    slot: ConnectionSlot,
    graceful: Watcher,
}

impl Connection {
    /// What goes wrong on a connection is the client's doing, and its alone to know.
    async fn serve(self, stream: TcpStream) {
        match self.service.access().await.tls.clone() {
            None => self.answer(stream, None).await,
            Some(tls) => match timeout(self.limits.handshake, secured(stream, &tls, self.limits)).await {
                Ok(Ok(MaybeTls::Tls(stream))) => self.answer(*stream, Some(tls)).await,
                Ok(Ok(MaybeTls::PlainHttp(stream))) => refuse_plain_http(stream).await,
                Ok(Err(_)) | Err(_) => {}
            },
        }
    }

    async fn answer<S: Socket>(self, stream: S, tls: Option<Arc<ServerConfig>>) {
        let Self { service, limits, from, slot, graceful } = self;
        let mut builder = http1::Builder::new();
        // How long a head may take is known to the slot.
        builder.header_read_timeout(None).max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes);
        let connection = builder.serve_connection(
            TokioIo::new(TrackedStream::new(stream, slot.clone())),
            service_fn(move |request| {
                slot.set_preparing();
                let (service, tls, slot) = (service.clone(), tls.clone(), slot.clone());
                async move { service.answer_to(request, from, tls.as_ref(), &slot).await }
            }),
        );
        let _ = graceful.watch(connection).await;
    }
}

enum MaybeTls {
    Tls(Box<TlsStream<TcpStream>>),
    /// What came is HTTP.
    PlainHttp(TcpStream),
}

async fn secured(stream: TcpStream, tls: &Arc<ServerConfig>, limits: Limits) -> io::Result<MaybeTls> {
    let mut first = [0];
    // A handshake begins with the number 22, every method of HTTP with a letter.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        return Ok(MaybeTls::PlainHttp(stream));
    }
    let limit_buffers = |tls: &mut ServerConnection| tls.set_buffer_limit(Some(limits.head_bytes));
    let stream = TlsAcceptor::from(Arc::clone(tls)).accept_with(stream, limit_buffers).await?;
    Ok(MaybeTls::Tls(Box::new(stream)))
}

const PLAIN_HTTP: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 63\r\n\r\n\
                          this is an HTTPS server and got plain HTTP: begin with https://\n";

async fn refuse_plain_http(mut stream: TcpStream) {
    let answered = async {
        stream.write_all(PLAIN_HTTP.as_bytes()).await?;
        stream.shutdown().await?;
        // Whatever is left unread when the socket is closed would take the answer away from the client.
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(Duration::from_secs(1), answered).await;
}
