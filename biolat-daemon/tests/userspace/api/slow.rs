//! The log of slow and failed I/Os as JSON.

use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

use biolat_daemon::http::{Limits, ServeConfig};
use biolat_model::{
    api::ApiSlowLog,
    io_names::{IoFile, IoNames, class},
    snapshot::{SlowIo, Snapshot},
};

use crate::support::{
    server::Server,
    snapshots::{serve_config, snapshot},
};

const PATH: &str = "/api/v1/slow";

fn failed_write() -> SlowIo {
    SlowIo {
        number: 41,
        completed: UNIX_EPOCH + Duration::from_micros(1_700_000_005_500_123),
        device: "sda".into(),
        op: "write".into(),
        sector: 1 << 40,
        bytes: 8192,
        status: "medium".into(),
        latencies: [None, Some(Duration::from_millis(250)), Some(Duration::from_secs(30)), None],
        cpu: 9,
        workload: Some("/system.slice/a.service".into()),
        names: IoNames {
            class: Some(class::FILE.into()),
            file: Some(IoFile {
                path: "/base/2619".into(),
                mount: Some("/srv".into()),
                file_system: "ext4".into(),
                inode: 12,
                removed: false,
            }),
            process_unknown: Some("written back by the kernel".into()),
            ..IoNames::default()
        },
    }
}

fn with_log(ios: &[SlowIo]) -> Snapshot {
    Snapshot { slow: ios.into(), slow_dropped: 3, ..snapshot(1) }
}

/// The document as written by the first release: see `reads_older_and_newer_daemons`.
const FIRST: &str = r#"{
    "version": 1, "biolat": "0.1.0", "host": "example", "taken": 9.5, "started": 1.0, "interval": 5.0,
    "threshold": 0.1, "dropped": 3,
    "ios": [{
        "number": 41, "completed": 1700000005.500123, "device": "sda", "op": "write", "sector": 1099511627776,
        "bytes": 8192, "status": "medium", "cpu": 9, "workload": "/system.slice/a.service",
        "latency": {"admission": null, "queue": 0.25, "device": 30.0, "total": null},
        "class": "file", "file": {"path": "/base/2619", "mount": "/srv", "file_system": "ext4", "inode": 12, "removed": false},
        "file_unknown": null, "process": null, "process_unknown": "written back by the kernel"
    }]
}"#;

#[test]
fn slow_log_matches_snapshot() {
    let snapshot = Snapshot {
        taken: UNIX_EPOCH + Duration::from_millis(9_500),
        started: UNIX_EPOCH + Duration::from_secs(1),
        ..with_log(&[failed_write()])
    };
    let log = ApiSlowLog::of(&snapshot, Some(Duration::from_millis(100)));
    let first: serde_json::Value = serde_json::from_str(FIRST).unwrap();
    assert_eq!(serde_json::to_value(&log).unwrap(), first);
    assert_eq!(serde_json::from_str::<ApiSlowLog>(FIRST).unwrap(), log);
    assert_eq!(ApiSlowLog::of(&snapshot, None).threshold, None);
}

#[test]
fn missing_latencies_are_none() {
    let sparse =
        FIRST.replace(r#""admission": null, "queue": 0.25, "device": 30.0, "total": null"#, r#""later": 1"#);
    let log: ApiSlowLog = serde_json::from_str(&sparse).unwrap();
    assert_eq!(log.ios[0].latencies, [None; 4]);
}

#[tokio::test]
async fn serves_slow_log() {
    let config = ServeConfig { slow: Some(Duration::from_millis(50)), ..serve_config() };
    let server = Server::start_with(config, None, Limits::default()).await;
    assert_eq!(server.get(PATH, "").await.status, 503, "before the first collection");
    let mut etags = Vec::new();
    for ios in [&[][..], &[failed_write()]] {
        let snapshot = Arc::new(with_log(ios));
        server.snapshots.send_replace(Some(Arc::clone(&snapshot)));
        let reply = server.get(PATH, "").await;
        assert!(
            reply.status == 200 && reply.head.contains("content-type: application/json"),
            "{}",
            reply.head
        );
        let log = ApiSlowLog::of(&snapshot, Some(Duration::from_millis(50)));
        assert_eq!(reply.body, serde_json::to_vec(&log).unwrap());
        let etag = reply.head.lines().find_map(|line| line.strip_prefix("etag: w/")).unwrap().to_owned();
        let known = server.get(PATH, &format!("If-None-Match: {etag}\r\n")).await;
        assert_eq!((known.status, known.body.len()), (304, 0));
        etags.push(etag);
    }
    assert_ne!(etags[0], etags[1]);
}
