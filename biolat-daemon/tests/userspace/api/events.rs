//! Event streams: contents, lifetime and resource limits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use biolat_daemon::http::{Limits, ServeConfig};
use biolat_model::snapshot::Snapshot;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    task::yield_now,
    time::timeout,
};

use crate::support::{
    server::Server,
    snapshots::{serve_config, snapshot},
};

const PATH: &str = "/api/v1/events";
/// Longer than the interval between admission checks, even on a busy machine.
const SOON: Duration = Duration::from_secs(10);

/// A client that reads an event stream.
struct Listener {
    stream: TcpStream,
    text: String,
}

impl Listener {
    async fn new(server: &Server) -> Self {
        let mut listener =
            Self { stream: TcpStream::connect(server.address).await.unwrap(), text: String::new() };
        let ask = format!("GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n");
        listener.stream.write_all(ask.as_bytes()).await.unwrap();
        listener.read_until("\r\n\r\n").await;
        listener
    }

    fn status(&self) -> &str {
        self.text.split(' ').nth(1).unwrap()
    }

    /// Reads until the text contains `wanted`.
    async fn read_until(&mut self, wanted: &str) {
        while !self.text.contains(wanted) {
            assert!(self.read_more().await, "ended without {wanted:?}: {}", self.text);
        }
    }

    /// Reads once. Returns false at the end of the stream.
    async fn read_more(&mut self) -> bool {
        let mut some = [0; 1024];
        let read = timeout(SOON, self.stream.read(&mut some)).await;
        let read = read.unwrap_or_else(|_| panic!("timed out after {}", self.text)).unwrap_or(0);
        self.text.push_str(std::str::from_utf8(&some[..read]).unwrap());
        read > 0
    }

    /// Reads to the end. Returns whether the stream ended properly.
    async fn read_to_end(&mut self) -> bool {
        while self.read_more().await {}
        self.text.ends_with("\r\n0\r\n\r\n")
    }

    fn count(&self, what: &str) -> usize {
        self.text.matches(what).count()
    }
}

/// Returns the first snapshot with a timestamp this many seconds later.
fn snapshot_after(first: &Snapshot, seconds: u64) -> Option<Arc<Snapshot>> {
    Some(Arc::new(Snapshot { taken: first.taken + Duration::from_secs(seconds), ..first.clone() }))
}

async fn tag(server: &Server) -> String {
    let head = server.get("/api/v1/snapshot", "").await.head;
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    tag.replacen("w/", "W/", 1)
}

#[tokio::test]
async fn sends_event_per_collection() {
    let server = Server::start(None, Limits::default()).await;
    let mut listener = Listener::new(&server).await;
    listener.read_until("retry: 2000\n\n").await;
    let head = listener.text.to_ascii_lowercase();
    assert!(
        head.starts_with("http/1.1 200") && head.contains("content-type: text/event-stream\r\n"),
        "{head}"
    );
    assert!(head.contains("cache-control: no-store\r\n") && head.contains("connection: close\r\n"), "{head}");
    assert_eq!(listener.count("event:"), 0, "before the first collection");

    let first = snapshot(3);
    for number in 1..=3 {
        server.snapshots.send_replace(snapshot_after(&first, number));
        let tag = tag(&server).await;
        let json: serde_json::Value =
            serde_json::from_slice(&server.get("/api/v1/snapshot", "").await.body).unwrap();
        listener
            .read_until(&format!("event: collection\nid: {tag}\ndata: {{\"taken\":{}}}\n\n", json["taken"]))
            .await;
        assert_eq!(listener.count("event: collection\n"), number as usize, "{}", listener.text);
        // A client that already has this event's snapshot requests it again.
        let again = server.get("/api/v1/snapshot", &format!("If-None-Match: {tag}\r\n")).await;
        assert_eq!(again.status, 304);
    }
    // A client that connects later gets the latest event at once.
    let mut second = Listener::new(&server).await;
    second.read_until("data: {").await;
    assert!(second.text.contains(&tag(&server).await));

    let head = server.send(&format!("HEAD {PATH} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
    assert!(head.status == 200 && head.body.is_empty() && head.head.contains("text/event-stream"));
    assert_eq!(
        server.send(&format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await.status,
        405
    );
}

/// The time limits for a request head and for a response do not apply to an event stream.
#[tokio::test]
async fn idle_stream_stays_open_with_heartbeats() {
    let short = Duration::from_millis(300);
    let limits =
        Limits { head: short, write: short, answer: short, heartbeat: 4 * short, ..Limits::default() };
    let server = Server::start(Some(snapshot(1)), limits).await;
    let mut listener = Listener::new(&server).await;
    let began = Instant::now();
    listener.read_until("\n:\n\n").await;
    assert!(began.elapsed() > 3 * short, "{:?}", began.elapsed());
    while listener.count(":\n\n") < 4 {
        assert!(listener.read_more().await, "the stream ended: {}", listener.text);
    }
    assert_eq!(listener.count("event:"), 1);
}

#[tokio::test]
async fn closes_stream_at_maximum_age() {
    let server =
        Server::start(Some(snapshot(1)), Limits { stream: Duration::from_millis(300), ..Limits::default() })
            .await;
    let mut listener = Listener::new(&server).await;
    let began = Instant::now();
    assert!(listener.read_to_end().await, "{}", listener.text);
    assert!(began.elapsed() > Duration::from_millis(200), "{:?}", began.elapsed());
}

#[tokio::test]
async fn limits_number_of_streams() {
    // Streams may take at most an eighth of the connections.
    let limits = Limits { connections: 16, streams: 32, ..Limits::default() };
    let server = Server::start(Some(snapshot(1)), limits).await;
    let mut listeners = vec![Listener::new(&server).await, Listener::new(&server).await];
    for _ in 0..3 {
        let refused = server.get(PATH, "").await;
        assert_eq!(refused.status, 503);
        assert!(refused.head.contains("retry-after: 10"), "{}", refused.head);
        assert!(refused.text().contains("/api/v1/snapshot"));
    }
    assert_eq!(server.get("/metrics", "").await.status, 200);
    // A HEAD request does not count as a stream.
    assert_eq!(server.send(&format!("HEAD {PATH} HTTP/1.1\r\nHost: x\r\n\r\n")).await.status, 200);
    // A client that disconnects frees its stream; repeat this a hundred times.
    for _ in 0..100 {
        drop(listeners.pop());
        let began = Instant::now();
        let again = loop {
            let again = Listener::new(&server).await;
            if again.status() == "200" {
                break again;
            }
            assert!(began.elapsed() < SOON, "{}", again.text);
        };
        listeners.push(again);
    }
    listeners[0].read_until("event: collection").await;
}

/// Opens a stream that is never read, and publishes more snapshots than the socket buffers can hold events for.
async fn unread_stream(server: &Server, first: &Snapshot) -> TcpStream {
    // The listener has set its socket options by now; new connections inherit them.
    assert_eq!(server.get("/-/ready", "").await.status, 200);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(format!("GET {PATH} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    stream.readable().await.unwrap();
    let began = Instant::now();
    // A megabyte of events, if all were kept.
    for number in 0..10_000 {
        server.snapshots.send_replace(snapshot_after(first, number));
        yield_now().await;
        yield_now().await;
    }
    assert!(began.elapsed() < SOON, "too slow to test this: {:?}", began.elapsed());
    stream
}

#[tokio::test]
async fn unread_stream_skips_events_and_is_closed() {
    let limits = Limits { streams: 1, write: Duration::from_secs(3), ..Limits::default() };
    let first = snapshot(1);
    let server = Server::start(Some(first.clone()), limits).await;
    let mut stream = unread_stream(&server, &first).await;
    // The latest event still arrives when the client resumes reading.
    let (mut bytes, last) = (0, tag(&server).await);
    let mut text = String::new();
    while !text.contains(&last) {
        let mut some = vec![0; 4096];
        let read = timeout(SOON, stream.read(&mut some)).await.unwrap().unwrap();
        assert!(read > 0, "the stream ended");
        bytes += read;
        text.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    println!("{bytes} bytes of 10,000 events");
    assert!(bytes < 200 << 10, "{bytes} bytes were buffered");

    let began = Instant::now();
    while Listener::new(&server).await.status() == "503" {
        assert!(began.elapsed() < 3 * SOON, "no stream became available to another client");
        for number in 0..1000 {
            server.snapshots.send_replace(snapshot_after(&first, number));
            yield_now().await;
        }
    }
}

#[tokio::test]
async fn streams_do_not_delay_stop() {
    let limits = Limits { grace: Duration::from_secs(30), ..Limits::default() };
    let first = snapshot(1);
    let server = Server::start(Some(first.clone()), limits).await;
    let mut listener = Listener::new(&server).await;
    listener.read_until("event: collection").await;
    let _unread = unread_stream(&server, &first).await;
    server.stop.send(true).unwrap();
    timeout(Duration::from_secs(15), server.serving).await.expect("the server did not stop").unwrap();
    assert!(listener.read_to_end().await, "the stream was cut off: {}", listener.text);
}

/// When the daemon stops, it publishes a last snapshot and then closes the channel.
#[tokio::test]
async fn announces_last_snapshot_before_end() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    let mut listener = Listener::new(&server).await;
    listener.read_until("event: collection").await;
    server.snapshots.send_replace(snapshot_after(&snapshot(1), 10));
    drop(server.snapshots);
    assert!(listener.read_to_end().await, "{}", listener.text);
    assert_eq!(listener.count("event: collection"), 2, "{}", listener.text);
}

#[tokio::test]
async fn disabled_page_has_no_events() {
    let server = Server::start_with(
        ServeConfig { live: false, ..serve_config() },
        Some(snapshot(1)),
        Limits::default(),
    )
    .await;
    let reply = server.get(PATH, "").await;
    assert_eq!(reply.status, 404);
    assert!(
        reply.text().contains("--no-ui") && reply.text().contains("/api/v1/snapshot"),
        "{}",
        reply.text()
    );
    assert_eq!(server.get("/api/v1/snapshot", "").await.status, 200);
    for path in ["/api/", "/nothing"] {
        let missing = server.get(path, "").await;
        assert!(missing.status == 404 && !missing.text().contains("events"), "{}", missing.text());
    }
    let page = server.get("/", "").await.text();
    assert!(
        page.contains("nvme0n1") && page.contains("href=\"/metrics\"") && !page.contains("<script"),
        "{page}"
    );
}
