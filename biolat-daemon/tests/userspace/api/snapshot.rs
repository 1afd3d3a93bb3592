//! The snapshot as JSON, and conditional requests.

use std::{
    io::Read as _,
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_daemon::http::Limits;
use biolat_model::snapshot::{Health, Snapshot};
use flate2::read::GzDecoder;
use serde_json::Value;

use crate::support::{
    server::{Reply, Server},
    snapshots::snapshot,
};

const PATH: &str = "/api/v1/snapshot";

/// Returns a header of the response, in lower case.
fn header<'a>(reply: &'a Reply, name: &str) -> Option<&'a str> {
    reply.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// The snapshot as written by the first release. `first.json` never changes: fields added later have a default, so `biolat` can
/// read older daemons, and unknown fields are ignored, so it can read newer ones.
#[test]
fn reads_older_and_newer_daemons() {
    let first = include_str!("first.json");
    let read: Snapshot = serde_json::from_str(first).unwrap();
    let device = &read.devices[0];
    assert_eq!(
        (device.device.name.as_str(), device.series[0].histograms[3].count(), read.lost["no_room"]),
        ("nvme0n1", 20, 3)
    );

    let newer = first.replace("{\n", "{ \"added\": [{\"later\": 1}],\n");
    assert_eq!(newer.matches("added").count(), 5, "in each object of several lines");
    assert_eq!(serde_json::from_str::<Snapshot>(&newer).unwrap(), read);
}

#[tokio::test]
async fn serves_snapshot() {
    let server = Server::start(None, Limits::default()).await;
    let early = server.get(PATH, "").await;
    assert_eq!(early.status, 503, "before the first collection");
    assert!(early.text().contains("not ready"));

    let snapshot = Arc::new(snapshot(3));
    server.snapshots.send_replace(Some(Arc::clone(&snapshot)));
    let plain = server.get(PATH, "").await;
    assert_eq!((plain.status, header(&plain, "content-type")), (200, Some("application/json")));
    assert_eq!(header(&plain, "vary"), Some("accept-encoding"));
    assert_eq!(header(&plain, "cache-control"), Some("no-cache"));
    assert_eq!(plain.body, serde_json::to_vec(&*snapshot).unwrap());
    let read: Value = serde_json::from_slice(&plain.body).unwrap();
    assert_eq!((&read["host"], &read["interval"]), (&"example".into(), &5.0.into()));
    assert_eq!(read["devices"].as_array().unwrap().len(), 3);

    let packed = server.get(PATH, "Accept-Encoding: gzip\r\n").await;
    assert_eq!(header(&packed, "content-encoding"), Some("gzip"));
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed.body[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain.body);
    assert_eq!(header(&packed, "etag"), header(&plain, "etag"));

    let head = server.send(&format!("HEAD {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(header(&head, "content-length"), Some(plain.body.len().to_string().as_str()));
    assert_eq!(header(&head, "etag"), header(&plain, "etag"));
    let post = server.send(&format!("POST {PATH} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")).await;
    assert_eq!(post.status, 405);
}

#[tokio::test]
async fn unchanged_snapshot_is_not_sent_again() {
    let first = snapshot(3);
    let server = Server::start(Some(first.clone()), Limits::default()).await;
    let whole = server.get(PATH, "").await;
    // `Reply` converts the head to lower case, including the tag.
    let tag = header(&whole, "etag").unwrap().to_owned().replacen("w/", "W/", 1);
    for known in [tag.clone(), tag.replace("W/", ""), "*".into(), format!("\"x\", {tag}")] {
        for encoding in ["", "Accept-Encoding: gzip\r\n"] {
            let reply = server.get(PATH, &format!("If-None-Match: {known}\r\n{encoding}")).await;
            assert_eq!((reply.status, reply.body.len()), (304, 0), "{known}");
            assert_eq!(header(&reply, "etag"), header(&whole, "etag"));
            assert_eq!(header(&reply, "vary"), Some("accept-encoding"));
            assert_eq!(header(&reply, "cache-control"), Some("no-cache"));
        }
    }
    assert_eq!(server.get(PATH, "If-None-Match: \"x\"\r\n").await.status, 200);

    // A later collection, a failed one, and a restart at the same moment all change the tag.
    let next = Snapshot { taken: first.taken + Duration::from_millis(100), ..first.clone() };
    let restarted = Snapshot { started: SystemTime::now(), ..first.clone() };
    let health = Health { failures: 1, ..first.health.clone() };
    let failed = Snapshot { health, ..first.clone() };
    for other in [next, failed, restarted] {
        server.snapshots.send_replace(Some(Arc::new(other)));
        let reply = server.get(PATH, &format!("If-None-Match: {tag}\r\n")).await;
        assert_eq!(reply.status, 200);
        assert_ne!(header(&reply, "etag"), header(&whole, "etag"));
    }
}

#[tokio::test]
async fn not_found_names_existing_paths() {
    let server = Server::start(Some(snapshot(1)), Limits::default()).await;
    for path in
        ["/api", "/api/", "/api/v1", "/api/v1/", "/api/v2/snapshot", "/api/v1/snapshots", "/api/v1/snapshot/"]
    {
        let reply = server.get(path, "").await;
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.text().contains("/api/v1/snapshot"), "{}", reply.text());
    }
}
