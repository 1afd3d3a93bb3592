//! `report --at`, `--since` and `--worst` on a server with a synthetic day, in which one drive stalled for four seconds.

use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_daemon::{
    histogram::Histogram,
    history::{HistoryLimits, SharedHistory},
    http::{Limits, Service, serve},
    snapshot::{SeriesView, SlowIo, SlowLog, Snapshot},
};
use tokio::sync::watch;

use crate::{
    report::{command, fails, server_of, text},
    support::snapshots::{serve_config, snapshot},
};

const MINUTES: u64 = 24 * 60;

/// The minute of the stall, before the end of the day.
const STALL: u64 = 5 * 60;

/// The stalled drive.
const DRIVE: &str = "nvme3n1";

/// The last whole minute.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 * 60
}

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn add(series: &mut SeriesView, index: i32, count: u64, ns: u128) {
    series.bytes += 4096 * count;
    for histogram in &mut series.histograms[2..] {
        let buckets = vec![(index, count)];
        histogram.add(&Histogram { buckets, sum_ns: ns * u128::from(count), ..Histogram::new() });
    }
}

/// A day of 8 drives with 60 reads of a millisecond a minute. In the minute of the stall, one drive has 7 reads of 4 s, and one
/// write of another drive fails.
fn day(now: u64) -> SharedHistory {
    let history = SharedHistory::new(
        HistoryLimits { age: Duration::from_secs(93_600), bytes: 16 << 20 },
        Duration::ZERO,
    );
    let mut snapshot = snapshot(8);
    snapshot.started = at(now - 60 * MINUTES);
    for view in &mut snapshot.devices {
        view.since = snapshot.started;
        view.series =
            ["read", "write"].map(|op| SeriesView { op: op.into(), ..SeriesView::default() }).into();
    }
    for minute in 1..=MINUTES {
        snapshot.taken = at(now - 60 * (MINUTES - minute));
        for view in &mut snapshot.devices {
            add(&mut view.series[0], -79, 60, 1_000_000);
            if minute == MINUTES - STALL + 1 && view.device.name == DRIVE {
                add(&mut view.series[0], 16, 7, 4_000_000_000);
            }
        }
        if minute == MINUTES - STALL + 1 {
            snapshot.devices[5].series[1].errors = vec![("medium", 1)];
            let stalled = SlowIo {
                number: 1,
                completed: snapshot.taken - Duration::from_secs(20),
                device: DRIVE.into(),
                op: "read".into(),
                sector: 4096,
                bytes: 4096,
                status: "ok",
                latencies: [
                    None,
                    None,
                    Some(Duration::from_millis(3_999)),
                    Some(Duration::from_millis(3_999)),
                ],
                cpu: 2,
                cgroup: "/system.slice/postgresql.service".into(),
            };
            snapshot.slow = SlowLog { ios: [stalled].into(), dropped: 0 };
        }
        snapshot.health.durations.zero += 1;
        history.record(&Arc::new(snapshot.clone()), Duration::from_secs(1000 + 60 * minute));
    }
    history
}

fn biolat(history: Option<SharedHistory>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_snapshots, seen) = watch::channel::<Option<Arc<Snapshot>>>(None);
            let (_stop, stopped) = watch::channel(false);
            let mut service = Service::new(seen, serve_config());
            if let Some(history) = history {
                service = service.with_history(history);
            }
            serve(vec![listener.try_into().unwrap()], service, Limits::default(), stopped).await;
        });
    });
    address
}

fn report(address: SocketAddr, arguments: &[&str]) -> String {
    let output = command(&[&["--from", &address.to_string()], arguments].concat()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// A time of day in this host's time zone, as `date` writes it.
fn date(seconds: u64, format: &str) -> String {
    let output =
        Command::new("date").args(["-d", &format!("@{seconds}"), &format!("+{format}")]).output().unwrap();
    text(&output.stdout).trim().to_owned()
}

#[test]
fn the_stall_is_found() {
    let now = now();
    let address = biolat(Some(day(now)));
    let stall = now - 60 * STALL;

    // Without knowing when.
    let worst = report(address, &["--worst"]);
    let lines: Vec<_> = worst.lines().collect();
    assert!(lines[0].starts_with("reading the history of biolat"), "{worst}");
    let row = lines.iter().find(|line| line.contains(DRIVE)).unwrap();
    assert_eq!(
        lines.iter().position(|line| line == row),
        Some(lines.iter().position(|l| l.starts_with("begin")).unwrap() + 1),
        "{worst}"
    );
    let row: Vec<_> = row.split_whitespace().collect();
    let time = date(stall, "%Y-%m-%d %H:%M:%S");
    let completed = date(stall + 40, "%H:%M:%S");
    let expected = format!("{time} 60 s {DRIVE} read 4.00 s 67 - {completed}");
    assert_eq!(row.join(" "), expected, "{worst}");
    let failed: Vec<_> =
        worst.lines().filter(|line| line.contains("nvme5n1  ") && line.contains("write")).collect();
    assert_eq!(failed.len(), 1, "{worst}");

    // By its time of day.
    let window = report(address, &["--at", &date(stall, "%H:%M"), "--for", "5m", "-D"]);
    assert!(window.contains(&format!("{time} to {}, 300 s", date(stall + 300, "%H:%M:%S"))), "{window}");
    assert!(window.contains("Slowest I/Os:") && window.contains("postgresql.service"), "{window}");
    assert!(window.contains("Findings in 300 s:"), "{window}");
    // 8 drives with 60 reads a minute.
    assert!(window.matches("  300 I/O in ").count() == 7 && window.contains("  307 I/O in "), "{window}");

    // As JSON, minute by minute: one has it.
    let since = stall - 120;
    let json =
        report(address, &["--since", &since.to_string(), "--until", &(since + 300).to_string(), "-jD", "60"]);
    let lines: Vec<serde_json::Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5);
    let of_drive = |line: &serde_json::Value| {
        let blocks = line["blocks"].as_array().unwrap();
        let block = blocks.iter().find(|block| block["device"] == DRIVE).unwrap();
        (block["ios"].as_u64().unwrap(), line["slow"].as_array().unwrap().len())
    };
    assert_eq!(lines.iter().map(of_drive).collect::<Vec<_>>(), [(60, 0), (60, 0), (67, 1), (60, 0), (60, 0)]);
    assert_eq!(lines[2]["ended"].as_f64(), Some((stall + 60) as f64));
    let worst = report(address, &["--worst", "-j"]);
    let first: serde_json::Value = serde_json::from_str(worst.lines().next().unwrap()).unwrap();
    assert_eq!((first["device"].as_str(), first["latency"].as_f64()), (Some(DRIVE), Some(3.999)));
    // Of one device only.
    assert!(!report(address, &["--worst", "-d", "nvme0n1"]).contains(DRIVE));
}

#[test]
fn what_is_not_kept_is_said() {
    let now = now();
    let address = biolat(Some(day(now)));
    let before = report(address, &["--at", &(now - 60 * MINUTES - 600).to_string()]);
    let begins = format!("the history begins at {}", date(now - 60 * MINUTES, "%Y-%m-%d %H:%M:%S"));
    let unwrapped = before.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(unwrapped.contains(&format!("nothing is kept of that time: {begins}")), "{before}");
    let later = [&now.to_string()[..], "--for", "5m"];
    let _ = report(address, &[&["--at"], &later[..]].concat());
    let refused = |arguments: &[&str]| {
        command(&[&["--from", &address.to_string()], arguments].concat()).output().unwrap()
    };
    fails(&refused(&["--at", &(now + 3600).to_string()]), &["from is in the future"]);
    let off = biolat(None);
    let output = command(&["--from", &off.to_string(), "--worst"]).output().unwrap();
    fails(&output, &["--history off disables the history"]);
    let old = server_of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").to_string();
    let output = command(&["--from", &old, "--at", "-1h"]).output().unwrap();
    fails(&output, &["has no /api/v1/history", "one older than", "`report --at`"]);
}

#[test]
fn wrong_options() {
    for (arguments, expected) in [
        (&["--at", "03:00"][..], "--from"),
        (&["--from", "db1", "--at", "25:00"], "give a time as in 03:00"),
        (&["--from", "db1", "--at", "03:00", "--since", "02:00"], "cannot be used with"),
        (&["--from", "db1", "--until", "02:00"], "--since"),
        (&["--from", "db1", "--worst", "--who"], "cannot be used with"),
        (&["--from", "db1", "--at", "03:00", "--sizes"], "cannot be used with"),
    ] {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
    }
}
