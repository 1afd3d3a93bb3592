//! The HTTP server over real sockets, with synthetic snapshots; needs neither the probe nor privileges.

use std::{
    io::{self, Read as _},
    sync::Arc,
    time::{Duration, Instant},
};

use biolat_daemon::http::Limits;
use biolat_model::snapshot::LongWait;
use flate2::read::GzDecoder;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
    time::timeout,
};

use crate::support::server::{Reply, Server};
use crate::support::snapshots::snapshot;

#[tokio::test]
async fn negotiates_formats() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    const PROTOBUF: &str =
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
    for (accept, content_type) in [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("*/*", "text/plain; version=0.0.4; charset=utf-8"),
        ("application/json", "text/plain; version=0.0.4; charset=utf-8"),
        (
            "application/openmetrics-text;version=1.0.0,*/*;q=0.1",
            "application/openmetrics-text; version=1.0.0",
        ),
        (
            PROTOBUF,
            "application/vnd.google.protobuf; proto=io.prometheus.client.metricfamily; encoding=delimited",
        ),
        (
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.3,\
             text/plain;q=0.8",
            "text/plain; version=0.0.4",
        ),
    ] {
        let header = if accept.is_empty() { String::new() } else { format!("Accept: {accept}\r\n") };
        let reply = server.get("/metrics", &header).await;
        assert_eq!(reply.status, 200);
        assert!(reply.head.contains(&format!("content-type: {content_type}")), "{accept}: {}", reply.head);
        assert!(reply.head.contains("vary: accept, accept-encoding"), "{}", reply.head);
    }
    let text = server.get("/metrics", "").await.text();
    assert!(
        text.contains("biolat_total_latency_seconds_count{device=\"nvme0n1\",op=\"read\"} 481\n"),
        "{text}"
    );
    assert!(!text.contains("# EOF"));
    let text = server.get("/metrics", "Accept: application/openmetrics-text\r\n").await.text();
    assert!(text.ends_with("# EOF\n") && !text.contains("_created"), "{text}");
}

#[tokio::test]
async fn gzip_on_request() {
    let server = Server::start(Some(snapshot(3)), Limits::default()).await;
    let plain = server.get("/metrics", "").await;
    let packed = server.get("/metrics", "Accept-Encoding: gzip\r\n").await;
    assert!(packed.head.contains("content-encoding: gzip"), "{}", packed.head);
    assert!(!plain.head.contains("content-encoding"));
    assert!(packed.body.len() * 5 < plain.body.len(), "{} of {}", packed.body.len(), plain.body.len());
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
}

#[tokio::test]
async fn every_route() {
    let server = Server::start(None, Limits::default()).await;
    assert_eq!(server.get("/-/healthy", "").await.status, 200);
    for path in ["/-/ready", "/metrics"] {
        let reply = server.get(path, "").await;
        assert_eq!(reply.status, 503, "{path} before the first collection");
        assert!(reply.text().contains("not ready"));
    }
    assert!(server.get("/", "").await.text().contains("No data yet"));

    server.snapshots.send_replace(Some(Arc::new(snapshot(1))));
    assert_eq!(server.get("/-/ready", "").await.status, 200);
    assert_eq!(server.get("/metrics?x=y", "").await.status, 200);
    let page = server.get("/", "").await;
    assert!(page.head.contains("content-type: text/html; charset=utf-8"), "{}", page.head);
    for part in ["nvme0n1", "href=\"/metrics\"", env!("CARGO_PKG_VERSION")] {
        assert!(page.text().contains(part), "{}", page.text());
    }
    let missing = server.get("/metric", "").await;
    assert_eq!(missing.status, 404);
    assert!(missing.text().contains("/metrics"));
}

#[tokio::test]
async fn methods() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    for path in ["/metrics", "/", "/-/healthy"] {
        let whole = server.get(path, "").await;
        let head =
            server.send(&format!("HEAD {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert!(head.head.contains(&format!("content-length: {}", whole.body.len())), "{}", head.head);
    }
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"] {
        let reply = server
            .send(&format!(
                "{method} /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
            ))
            .await;
        assert_eq!(reply.status, 405, "{method}");
        assert!(reply.head.contains("allow: get, head"), "{}", reply.head);
    }
}

#[tokio::test]
async fn bad_request_closes_only_its_connection() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    for garbage in
        ["\r\n\r\n\0\0garbage\r\n\r\n", "GET\r\n\r\n", "GET /metrics HTTP/9.9\r\n\r\n", "\u{16}\u{3}\u{1}"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let status = Reply::read(&mut stream).await.status;
        assert!(matches!(status, 0 | 400 | 505), "{garbage:?}: {status}");
    }
    let header = format!("X-Long: {}\r\n", "a".repeat(20_000));
    assert_eq!(server.get("/metrics", &header).await.status, 431);
    let path = format!("/{}", "a".repeat(20_000));
    assert!(matches!(server.get(&path, "").await.status, 414 | 431));
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    assert_eq!(server.get("/metrics", &many).await.status, 431);
    assert_eq!(server.get("/metrics", "").await.status, 200);
}

/// Applies to HTTP/1.1 only: RFC 9112, section 3.2.
#[tokio::test]
async fn requires_exactly_one_host() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    for (request, status) in [
        ("GET /metrics HTTP/1.1\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n", 400),
        ("GET /metrics HTTP/1.1\r\nHost: a\r\n", 200),
        ("GET /metrics HTTP/1.0\r\n", 200),
    ] {
        let reply = server.send(&format!("{request}Connection: close\r\n\r\n")).await;
        assert_eq!(reply.status, status, "{request}");
    }
}

/// Some clients shut down their sending side after the request.
#[tokio::test]
async fn half_closed_client_gets_its_response() {
    let server = Server::start(Some(snapshot(100)), Limits::default()).await;
    for number in 0..200 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        stream.shutdown().await.unwrap();
        let reply = Reply::read(&mut stream).await;
        let length = format!("content-length: {}\r\n", reply.body.len());
        assert_eq!(reply.status, 200, "response {number}");
        assert!(
            reply.head.contains(&length) && reply.body.len() > 100_000,
            "response {number}: {}",
            reply.head
        );
    }
}

/// The second request is prepared while the first response is still being sent.
#[tokio::test]
async fn half_closed_client_gets_pipelined_responses() {
    let server = Server::start(None, Limits::default()).await;
    for number in 0..20 {
        // A new snapshot forces each response to be encoded again.
        server.snapshots.send_replace(Some(Arc::new(snapshot(100))));
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        for request in ["/metrics", "/api/v1/snapshot", "/"] {
            let request = format!("GET {request} HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
        }
        stream.shutdown().await.unwrap();
        let mut all = Vec::new();
        timeout(Duration::from_secs(20), stream.read_to_end(&mut all)).await.unwrap().unwrap();
        let responses = all.windows(12).filter(|part| part == b"HTTP/1.1 200").count();
        assert_eq!(responses, 3, "client {number}: {} bytes", all.len());
    }
}

#[tokio::test]
async fn reports_failing_collections_as_unhealthy() {
    let mut snapshot = snapshot(1);
    let server = Server::start(Some(snapshot.clone()), Limits::default()).await;
    for (seconds, status) in [(0, 200), (50, 200), (61, 503)] {
        // `None` on a machine that has just booted.
        let Some(last_success) = Instant::now().checked_sub(Duration::from_secs(seconds)) else { continue };
        snapshot.health.last_success = Some(last_success);
        server.snapshots.send_replace(Some(Arc::new(snapshot.clone())));
        for path in ["/-/healthy", "/-/ready"] {
            let reply = server.get(path, "").await;
            assert_eq!(reply.status, status, "{path} after {seconds} s: {}", reply.text());
        }
        assert_eq!(server.get("/metrics", "").await.status, 200);
    }
}

/// A collection waits for a run of the probe: a restart would not help (healthy), but the figures are old (not ready).
#[tokio::test]
async fn waiting_collection_is_healthy_but_not_ready() {
    let mut snapshot = snapshot(1);
    let server = Server::start(Some(snapshot.clone()), Limits::default()).await;
    let now = Instant::now();
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds));
    // `None` on a machine that has just booted.
    let (Some(last_success), Some(long_ago)) = (ago(75), ago(61)) else { return };
    snapshot.health.last_success = Some(last_success);
    for (wait, healthy, expected) in [
        (LongWait::InProgress, 200, "the figures are 75 s old: a collection waits for a run of the probe"),
        (LongWait::Ended(now), 200, "the figures are 75 s old"),
        (LongWait::Ended(long_ago), 503, "collections fail: none has succeeded for 75 s"),
        (LongWait::None, 503, "collections fail: none has succeeded for 75 s"),
    ] {
        snapshot.health.wait = wait;
        server.snapshots.send_replace(Some(Arc::new(snapshot.clone())));
        for (path, status) in [("/-/healthy", healthy), ("/-/ready", 503)] {
            let reply = server.get(path, "").await;
            assert_eq!(reply.status, status, "{path}, {wait:?}: {}", reply.text());
            assert!(reply.text().contains(expected), "{path}, {wait:?}: {}", reply.text());
        }
    }
}

#[tokio::test]
async fn disconnects_slow_and_idle_clients() {
    let limits = Limits { head: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(Some(snapshot(1)), limits).await;
    // One client never finishes its request, one never begins it, and one idles after a response.
    for begin in
        ["GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ", "", "GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(begin.as_bytes()).await.unwrap();
        let began = Instant::now();
        let _ = Reply::read(&mut stream).await;
        let took = began.elapsed();
        assert!(took > Duration::from_millis(200) && took < Duration::from_secs(10), "{begin:?}: {took:?}");
    }
    assert_eq!(server.get("/metrics", "").await.status, 200);
}

#[tokio::test]
async fn disconnects_client_that_does_not_read() {
    let limits = Limits { write: Duration::from_millis(300), connections: 1, ..Limits::default() };
    let server = Server::start(Some(snapshot(300)), limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(40).as_bytes()).await.unwrap();
    // The only allowed connection is freed when the server closes this one.
    let freed = async {
        while server.get("/-/healthy", "").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(15), freed).await.expect("the server did not close the connection");
}

#[tokio::test]
async fn evicts_longest_idle_connection() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Server::start(Some(snapshot(1)), limits).await;
    let mut idle = Vec::new();
    for _ in 0..2 {
        idle.push(TcpStream::connect(server.address).await.unwrap());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(server.get("/metrics", "").await.status, 200);
    let mut one = [0];
    assert_eq!(timeout(Duration::from_secs(10), idle[0].read(&mut one)).await.unwrap().unwrap(), 0);
    assert!(
        timeout(Duration::from_millis(100), idle[1].read(&mut one)).await.is_err(),
        "the other connection was closed as well"
    );
}

#[tokio::test]
async fn evicts_from_network_with_most_connections() {
    let server = Server::start(Some(snapshot(1)), Limits { connections: 3, ..Limits::default() }).await;
    let from = |address: &str| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(address.parse().unwrap()).unwrap();
        socket.connect(server.address)
    };
    let mut honest = from("127.0.0.1:0").await.unwrap();
    let mut many = Vec::new();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        many.push(from("127.0.0.2:0").await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut one = [0];
    for (number, stream) in many.iter_mut().enumerate() {
        let lost = timeout(Duration::from_millis(100), stream.read(&mut one)).await.is_ok();
        assert_eq!(lost, number < 4, "connection {number}: only the last two should remain");
    }
    // This connection has been idle the longest, but is still open.
    honest.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert_eq!(Reply::read(&mut honest).await.status, 200);
}

#[tokio::test]
async fn evicts_slowest_reader() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let server = Server::start(Some(snapshot(1500)), limits).await;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = TcpStream::connect(server.address).await.unwrap();
        reader.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        reader.readable().await.unwrap();
        readers.push(reader);
    }
    assert_eq!(server.get("/-/healthy", "").await.status, 200);
    let mut whole = Vec::new();
    let cut_off = readers[0].read_to_end(&mut whole).await;
    assert_eq!(cut_off.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    assert!(Reply::read(&mut readers[1]).await.body.len() > 12 << 20, "the other reader was cut off as well");
}

#[tokio::test]
async fn limits_response_time() {
    /// Less than the ten-second limit for a client that reads nothing.
    const LONG: Duration = Duration::from_secs(8);
    let limits = Limits { answer: Duration::from_millis(500), ..Limits::default() };
    let server = Server::start(Some(snapshot(1500)), limits).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let began = Instant::now();
    // Reads often enough not to stall, but too slowly to finish in time.
    let mut some = vec![0; 64 << 10];
    while matches!(stream.read(&mut some).await, Ok(read) if read > 0) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

#[tokio::test]
async fn stop_waits_for_running_scrape() {
    let limits = Limits { grace: Duration::from_secs(30), ..Limits::default() };
    // The response far exceeds the socket buffers, because this client's is small.
    let server = Server::start(Some(snapshot(1500)), limits).await;
    let whole = server.get("/metrics", "").await.body.len();
    assert!(whole > 12 << 20, "{whole} bytes");
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    server.stop.send(true).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(TcpStream::connect(server.address).await.is_err(), "a new connection was accepted");
    assert!(!server.serving.is_finished(), "the server did not wait for the scrape");
    let reply = Reply::read(&mut stream).await;
    assert_eq!((reply.status, reply.body.len()), (200, whole));
    timeout(Duration::from_secs(15), server.serving).await.expect("the server did not stop").unwrap();
}

#[tokio::test]
async fn unread_response_delays_stop_by_grace_period_only() {
    let limits = Limits { grace: Duration::from_millis(300), ..Limits::default() };
    let server = Server::start(Some(snapshot(1500)), limits).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    stream.readable().await.unwrap();
    server.stop.send(true).unwrap();
    let began = Instant::now();
    timeout(Duration::from_secs(15), server.serving).await.expect("the server did not stop").unwrap();
    assert!(began.elapsed() >= Duration::from_millis(250), "{:?}", began.elapsed());
}

#[tokio::test]
async fn idle_connection_does_not_delay_stop() {
    let limits = Limits { grace: Duration::from_secs(30), ..Limits::default() };
    let server = Server::start(Some(snapshot(1)), limits).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    idle.write_all(b"GET /-/healthy HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    idle.readable().await.unwrap();
    server.stop.send(true).unwrap();
    timeout(Duration::from_secs(15), server.serving).await.expect("the server did not stop").unwrap();
}
