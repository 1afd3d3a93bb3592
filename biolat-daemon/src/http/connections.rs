//! Accepts and serves connections, with limits, timeouts and a graceful shutdown.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use biolat_system::process;
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
    authentication::Handshake,
    connection_slots::{ConnectionSlot, ConnectionSlots},
    limits::Limits,
    tracked_stream::{Socket, TrackedStream},
};

/// Sizes of a connection's receive and send buffers in the kernel, which would be megabytes by default.
const KERNEL_BUFFERS: [usize; 2] = [16 << 10, 64 << 10];
/// Descriptors that a collection needs, for files in sysfs and maps for new series.
const COLLECTION_FILES: u64 = 16;
/// How often the time limits are checked.
const OVERDUE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Serves on every listener until `stop` is set or dropped, then waits for unfinished responses.
pub async fn serve(
    listeners: Vec<TcpListener>,
    service: Service,
    limits: Limits,
    mut stop: watch::Receiver<bool>,
) {
    let graceful = GracefulShutdown::new();
    // With a low file limit, leave half of the descriptors to the rest of the process, and some to collections.
    let files = process::max_fds();
    let open = process::open_fds(Path::new("/proc")).unwrap_or(files / 4);
    let free = files.saturating_sub(open + COLLECTION_FILES).clamp(1, (files / 2).max(1));
    let connections = limits.connections.min(usize::try_from(free).unwrap_or(usize::MAX));
    let streams = limits.streams.min(connections.div_ceil(8));
    let limits = Limits { connections, streams, ..limits };
    let slots = ConnectionSlots::new(limits);
    let mut accepting = JoinSet::new();
    let (accepted, mut streams) = mpsc::channel(1);
    for listener in listeners {
        set_socket_limits(&listener, limits);
        let accepted = accepted.clone();
        accepting.spawn(async move { while accepted.send(accept(&listener).await).await.is_ok() {} });
    }
    drop(accepted);

    let mut stopped = pin!(stop.wait_for(|&stop| stop));
    let mut tick = interval(OVERDUE_CHECK_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (stream, from) = tokio::select! {
            _ = &mut stopped => break,
            _ = tick.tick(), if slots.are_in_use() => {
                slots.close_overdue();
                continue;
            }
            Some(stream) = streams.recv() => stream,
            else => break,
        };
        let (slot, closed) = slots.acquire(from.ip());
        let connection = Connection {
            service: service.clone(),
            limits,
            from: from.ip(),
            slot,
            graceful: graceful.watcher(),
        };
        tokio::spawn(async move {
            tokio::select! {
                _ = closed => {}
                () = connection.serve(stream) => {}
            }
        });
    }
    drop(streams);
    accepting.shutdown().await;
    slots.shut_down();
    let _ = timeout(limits.grace, graceful.shutdown()).await;
}

/// Sets the socket buffer sizes, and the time after which the kernel gives up on an unreachable client. Connections inherit
/// both from the listener.
fn set_socket_limits(listener: &TcpListener, limits: Limits) {
    let socket = SockRef::from(listener);
    let [received, written] = KERNEL_BUFFERS;
    let limited = socket
        .set_recv_buffer_size(received)
        .and_then(|()| socket.set_send_buffer_size(written))
        .and_then(|()| socket.set_tcp_user_timeout(Some(limits.write)));
    if let Err(error) = limited {
        log::warn!("cannot set socket buffer sizes and timeouts: {error}");
    }
}

/// Accepts the next connection. Errors are temporary: the client has already closed it, or no file descriptor is free.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                log::warn!("cannot accept a connection: {error}");
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

/// A connection that holds a slot.
struct Connection {
    service: Service,
    limits: Limits,
    from: IpAddr,
    slot: ConnectionSlot,
    graceful: Watcher,
}

impl Connection {
    /// Serves the connection. Errors are the client's fault and not logged.
    async fn serve(self, stream: TcpStream) {
        match self.service.access().await.tls.clone() {
            None => self.serve_http(stream, None).await,
            Some(tls) => match timeout(self.limits.handshake, handshake(stream, &tls, self.limits)).await {
                Ok(Ok(MaybeTls::Tls(stream))) => self.serve_http(*stream, Some(tls)).await,
                Ok(Ok(MaybeTls::PlainHttp(stream))) => reject_plain_http(stream).await,
                Ok(Err(_)) | Err(_) => {}
            },
        }
    }

    async fn serve_http<S: Socket>(self, stream: S, tls: Option<Arc<ServerConfig>>) {
        let Self { service, limits, from, slot, graceful } = self;
        let mut builder = http1::Builder::new();
        // The slot enforces the time limit for a head.
        builder.header_read_timeout(None).max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes);
        let is_first = AtomicBool::new(true);
        let connection = builder.serve_connection(
            TokioIo::new(TrackedStream::new(stream, slot.clone())),
            service_fn(move |request| {
                slot.set_preparing();
                let (service, slot) = (service.clone(), slot.clone());
                let handshake =
                    Handshake { tls: tls.clone(), is_first_request: is_first.swap(false, Ordering::Relaxed) };
                async move {
                    let response = service.respond(request, from, &handshake, &slot).await;
                    let status = response.as_ref().map(|response| response.status());
                    slot.set_prepared(
                        status.is_ok_and(|status| status.is_success() || status.is_redirection()),
                    );
                    response
                }
            }),
        );
        let _ = graceful.watch(connection).await;
    }
}

enum MaybeTls {
    Tls(Box<TlsStream<TcpStream>>),
    /// The client speaks plain HTTP.
    PlainHttp(TcpStream),
}

async fn handshake(stream: TcpStream, tls: &Arc<ServerConfig>, limits: Limits) -> io::Result<MaybeTls> {
    let mut first = [0];
    // A TLS handshake begins with the byte 22, an HTTP method with a letter.
    if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
        return Ok(MaybeTls::PlainHttp(stream));
    }
    let limit_buffers = |tls: &mut ServerConnection| tls.set_buffer_limit(Some(limits.head_bytes));
    let stream = TlsAcceptor::from(Arc::clone(tls)).accept_with(stream, limit_buffers).await?;
    Ok(MaybeTls::Tls(Box::new(stream)))
}

/// Time limit for the response to plain HTTP.
const PLAIN_HTTP_TIMEOUT: Duration = Duration::from_secs(1);
const PLAIN_HTTP: &str = "this is an HTTPS server and got plain HTTP: begin with https://\n";

async fn reject_plain_http(mut stream: TcpStream) {
    let length = PLAIN_HTTP.len();
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{PLAIN_HTTP}"
    );
    let responded = async {
        stream.write_all(response.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing a socket with unread data sends a reset, and the client would lose the response.
        while stream.read(&mut [0; 1024]).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(PLAIN_HTTP_TIMEOUT, responded).await;
}
