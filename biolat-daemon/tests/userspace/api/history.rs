//! The growth in each interval, as JSON.

use std::{
    io::Read as _,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_daemon::http::Limits;
use biolat_history::{HistoryLimits, SharedHistory};
use biolat_model::{api::ApiHistory, snapshot::Snapshot};
use flate2::read::GzDecoder;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{
    history::filled,
    server::{Reply, Server},
    snapshots::snapshot,
};

const PATH: &str = "/api/v1/history";

fn document(body: &[u8]) -> ApiHistory {
    serde_json::from_slice(body).unwrap()
}

/// Removes the chunked framing from a body.
fn unchunked(body: &[u8]) -> Vec<u8> {
    chunks(body).concat()
}

fn chunks(mut body: &[u8]) -> Vec<&[u8]> {
    let mut chunks = Vec::new();
    loop {
        let end = body.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if length == 0 {
            return chunks;
        }
        chunks.push(&body[end + 2..end + 2 + length]);
        body = &body[end + 2 + length + 2..];
    }
}

fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[tokio::test]
async fn serves_range() {
    let (history, now) = filled(2, 20);
    let server = Server::of_history(&history).await;
    let (from, to) = (seconds(now) - 50.0, seconds(now) - 25.0);
    let reply = server.get(&format!("{PATH}?from={from}&to={to}"), "").await;
    assert_eq!(reply.status, 200);
    assert!(reply.head.contains("content-type: application/json\r\n"), "{}", reply.head);
    assert!(reply.head.contains("vary: accept-encoding\r\n"), "{}", reply.head);
    let answer = document(&unchunked(&reply.body));
    assert_eq!((answer.version, answer.host.as_str(), answer.interval), (1, "example", 5.0));
    assert_eq!((answer.from, answer.to), (from, to));
    assert_eq!(answer.complete_from, Some(seconds(now) - 100.0));
    assert_eq!(
        (answer.ten_seconds_from, answer.collections_from),
        (answer.complete_from, answer.complete_from)
    );
    let taken: Vec<_> = answer.intervals.iter().map(|interval| seconds(interval.ended) - from).collect();
    assert_eq!(taken, [5.0, 10.0, 15.0, 20.0, 25.0]);
    let bytes: Vec<_> =
        answer.intervals.iter().map(|interval| interval.devices[1].series[0].bytes / 4096).collect();
    assert_eq!(bytes, [11, 12, 13, 14, 15]);
    let op = &answer.intervals[0].devices[0].series[0];
    assert_eq!((op.histograms[3].count(), op.histograms[3].sum_ns), (160 * 11, 11_000));
    // Sizes and workloads are included. The workload has bytes but no latencies, so every I/O is attributed to `other`.
    assert_eq!(answer.breakdown_from, answer.complete_from);
    assert_eq!(op.sizes.as_ref().unwrap().requests.buckets, [(12, 160 * 11)]);
    let workloads = answer.intervals[0].workloads.as_ref().unwrap();
    let figures = workloads.iter().map(|workload| {
        (workload.name.as_str(), workload.usage[0].bytes / 4096, workload.usage[0].latency.count())
    });
    assert_eq!(figures.collect::<Vec<_>>(), [("a.service", 11, 0), ("other", 0, 160 * 11)]);
    // Intervals are merged by `step`; without parameters, everything is returned.
    let reply = server.get(&format!("{PATH}?from={from}&to={to}&step=15s"), "").await;
    let answer = document(&unchunked(&reply.body));
    let bytes: Vec<_> =
        answer.intervals.iter().map(|interval| interval.devices[1].series[0].bytes / 4096).collect();
    assert_eq!(bytes, [11 + 12 + 13, 14 + 15]);
    assert_eq!(answer.intervals[0].length, Duration::from_secs(15));
    assert_eq!(document(&unchunked(&server.get(PATH, "").await.body)).intervals.len(), 20);
}

#[tokio::test]
async fn gzip_history_is_identical() {
    let (history, now) = filled(3, 200);
    let server = Server::of_history(&history).await;
    let path = format!("{PATH}?from={}", seconds(now) - 900.0);
    let plain = unchunked(&server.get(&path, "").await.body);
    let reply = server.get(&path, "Accept-Encoding: gzip\r\n").await;
    assert!(reply.head.contains("content-encoding: gzip\r\n"), "{}", reply.head);
    let compressed = unchunked(&reply.body);
    let mut unpacked = Vec::new();
    GzDecoder::new(&compressed[..]).read_to_end(&mut unpacked).unwrap();
    let (plain, unpacked) = (document(&plain), document(&unpacked));
    assert_eq!(plain.intervals, unpacked.intervals);
    assert_eq!(
        plain.intervals.iter().map(|interval| interval.collections).sum::<u64>(),
        0,
        "synthetic snapshots have no health"
    );
    assert!(compressed.len() < 250_000, "{} bytes", compressed.len());
}

#[tokio::test]
async fn serves_empty_and_disabled_history() {
    let empty =
        SharedHistory::new(HistoryLimits { age: Duration::from_secs(60), bytes: 1 << 20 }, Duration::ZERO);
    let reply = Server::of_history(&empty).await.get(PATH, "").await;
    let answer = document(&unchunked(&reply.body));
    assert_eq!((answer.complete_from, answer.intervals.len()), (None, 0));
    let off = Server::start(Some(snapshot(1)), Limits::default()).await;
    let reply = off.get(PATH, "").await;
    assert_eq!(
        (reply.status, reply.text().as_str()),
        (404, "not found: --history off disables the history\n")
    );
}

#[tokio::test]
async fn rejects_bad_ranges_and_methods() {
    let (history, _) = filled(1, 3);
    let server = Server::of_history(&history).await;
    for (query, why) in [
        ("from=yesterday", "from: give a time as in 03:00"),
        ("from=-1h&to=-2h", "from must be before to"),
        ("from=-1h&step=0", "step: give a time as in 10s"),
        ("from=-1h&step=1e9", "step: give a time as in 10s"),
        ("from=-1h&limit=3", "unknown parameter: use from, to, step and detail"),
        ("from=%00", "from: give a time"),
        ("from=99999999999999999999999999999999999999", "from: give a time"),
        ("from=-99999999999999999999d", "from: give a time"),
    ] {
        let reply = server.get(&format!("{PATH}?{query}"), "").await;
        let text = reply.text();
        assert_eq!(reply.status, 400, "{query}: {text}");
        assert!(text.starts_with(&format!("bad request: {why}")) && text.lines().count() == 1, "{text}");
    }
    let head = server.send(&format!("HEAD {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    let post = server.send(&format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    assert_eq!(post.status, 405);
}

/// Clients that request a response and do not read it: eight get one, the rest are told to retry, and all other endpoints still
/// work. When the clients are gone, the history is available again.
#[tokio::test]
async fn limits_clients_that_do_not_read() {
    let (history, now) = filled(40, 100);
    let server = Server::of_history(&history).await;
    let request = format!("GET {PATH}?from={} HTTP/1.1\r\nHost: x\r\n\r\n", seconds(now) - 4000.0);
    let mut readers = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut begin = [0; 15];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(&begin, b"HTTP/1.1 200 OK");
        readers.push(stream);
    }
    let reply = server.get(PATH, "").await;
    assert_eq!((reply.status, reply.text().as_str()), (503, "too many clients read the history\n"));
    assert!(reply.head.contains("retry-after: 1\r\n"), "{}", reply.head);
    // Only the first of several pipelined requests is answered; then the connection closes.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.repeat(10).as_bytes()).await.unwrap();
    let mut answers = vec![0; 1 << 16];
    let mut length = 0;
    while let Ok(read) = stream.read(&mut answers[length..]).await
        && read > 0
    {
        length += read;
    }
    assert_eq!(String::from_utf8_lossy(&answers[..length]).matches("HTTP/1.1 503").count(), 1);
    for path in ["/metrics", "/api/v1/snapshot", "/-/healthy"] {
        assert_eq!(server.get(path, "").await.status, 200, "{path}");
    }
    // Recording still works.
    let before = history.bytes();
    let snapshot = Snapshot { taken: SystemTime::now(), ..snapshot(40) };
    history.record(&Arc::new(snapshot), Duration::from_secs(9000));
    assert_ne!(history.bytes(), before);
    drop(readers);
    for attempt in 0.. {
        if server.get(&format!("{PATH}?from=-1s"), "").await.status == 200 {
            break;
        }
        assert!(attempt < 100, "no reader slot became free");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Megabytes of JSON, encoded a few intervals at a time.
#[tokio::test]
async fn encodes_large_history_in_parts() {
    let (history, now) = filled(20, 150);
    let server = Server::of_history(&history).await;
    let reply = server.get(&format!("{PATH}?from={}", seconds(now) - 4000.0), "").await;
    let chunks = chunks(&reply.body);
    let longest = chunks.iter().map(|chunk| chunk.len()).max().unwrap();
    let all: usize = chunks.iter().map(|chunk| chunk.len()).sum();
    let interval = all / 150;
    assert!(all > 10_000_000, "{all} bytes");
    assert!(chunks.len() > 50 && longest < 2 * interval + 32_768, "{} chunks, {longest} bytes", chunks.len());
    assert!(chunks.last().unwrap().ends_with(b"]}"), "the document is incomplete");
}

/// The client shuts down its sending side after the request. Between two parts nothing is being sent.
#[tokio::test]
async fn half_closed_client_gets_whole_history() {
    let (history, now) = filled(20, 60);
    let server = Server::of_history(&history).await;
    let request = format!("GET {PATH}?from={} HTTP/1.1\r\nHost: x\r\n\r\n", seconds(now) - 4000.0);
    for number in 0..5 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let reply = Reply::read(&mut stream).await;
        assert!(reply.body.ends_with(b"0\r\n\r\n"), "answer {number}: {} bytes", reply.body.len());
        assert_eq!(document(&unchunked(&reply.body)).intervals.len(), 60, "answer {number}");
    }
}

/// The gauge shows the memory of the store, and exists only with a history.
#[tokio::test]
async fn exposes_history_memory() {
    let (history, _) = filled(2, 20);
    let reply = Server::of_history(&history).await.get("/metrics", "").await;
    let line = format!("\nbiolat_history_bytes {}\n", history.bytes());
    assert!(history.bytes() > 1000 && reply.text().contains(&line), "{line}");
    let off = Server::start(Some(snapshot(1)), Limits::default()).await;
    assert!(!off.get("/metrics", "").await.text().contains("biolat_history_bytes"));
}
