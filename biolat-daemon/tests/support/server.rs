//! A server with synthetic snapshots, and its responses.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use biolat_daemon::http::{Limits, ServeConfig, Service, serve};
use biolat_history::SharedHistory;
use biolat_model::snapshot::Snapshot;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::timeout,
};

use super::snapshots::{serve_config, snapshot};

/// A running server.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(snapshot: Option<Snapshot>, limits: Limits) -> Self {
        Self::start_with(serve_config(), snapshot, limits).await
    }

    pub(crate) async fn start_with(config: ServeConfig, snapshot: Option<Snapshot>, limits: Limits) -> Self {
        Self::start_service(snapshot, limits, |seen| Service::new(seen, config)).await
    }

    pub(crate) async fn start_service(
        snapshot: Option<Snapshot>,
        limits: Limits,
        service: impl FnOnce(watch::Receiver<Option<Arc<Snapshot>>>) -> Service,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (snapshots, seen) = watch::channel(snapshot.map(Arc::new));
        let (stop, stopped) = watch::channel(false);
        let serving = tokio::spawn(serve(vec![listener], service(seen), limits, stopped));
        Self { address, snapshots, stop, serving }
    }

    /// Starts a server with this history.
    pub(crate) async fn of_history(history: &SharedHistory) -> Self {
        let history = history.clone();
        Self::start_service(Some(snapshot(1)), Limits::default(), |seen| {
            Service::new(seen, serve_config()).with_history(history)
        })
        .await
    }

    pub(crate) async fn send(&self, request: &str) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        Reply::read(&mut stream).await
    }

    pub(crate) async fn get(&self, path: &str, headers: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n")).await
    }
}

/// A server on its own thread, for synchronous tests. It runs until the process ends.
pub(crate) struct BackgroundServer {
    pub(crate) address: SocketAddr,
    pub(crate) snapshots: watch::Sender<Option<Arc<Snapshot>>>,
}

impl BackgroundServer {
    pub(crate) fn start(
        snapshot: Option<Snapshot>,
        service: impl FnOnce(watch::Receiver<Option<Arc<Snapshot>>>) -> Service + Send + 'static,
    ) -> Self {
        let (started, starting) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::start_service(snapshot, Limits::default(), service).await;
                let Server { address, snapshots, stop: _stop, serving } = server;
                started.send(Self { address, snapshots }).unwrap();
                serving.await.unwrap();
            });
        });
        starting.recv().unwrap()
    }

    /// Starts a server with this history.
    pub(crate) fn of_history(snapshot: Option<Snapshot>, history: SharedHistory) -> Self {
        Self::start(snapshot, |seen| Service::new(seen, serve_config()).with_history(history))
    }

    /// Publishes a snapshot every 200 ms, numbered from `first`.
    pub(crate) fn keep_sending(self, first: u64, snapshot: impl Fn(u64) -> Snapshot + Send + 'static) {
        thread::spawn(move || {
            for number in first.. {
                thread::sleep(Duration::from_millis(200));
                self.snapshots.send_replace(Some(Arc::new(snapshot(number))));
            }
        });
    }
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Reads until the server closes the connection.
    pub(crate) async fn read(stream: &mut TcpStream) -> Self {
        let mut bytes = Vec::new();
        let read = timeout(Duration::from_secs(10), stream.read_to_end(&mut bytes)).await;
        read.expect("the server did not close the connection").unwrap_or_else(|error| {
            // Request data left unread after a rejection resets the connection, but the response has arrived.
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            0
        });
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").map_or(bytes.len(), |at| at + 4);
        let body = bytes.split_off(end);
        let head = String::from_utf8(bytes).unwrap().to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head, body }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}
