//! `at`, `since` and `worst` against a server with a synthetic day in which one drive stalled for four seconds.

use std::{
    net::SocketAddr,
    process::Command,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_daemon::http::Service;
use biolat_history::{HistoryLimits, SharedHistory};
use biolat_model::{
    cgroup::Identity,
    histogram::Histogram,
    io_names::{IoFile, IoNames, IoProcess, class},
    size_histogram::SizeHistogram,
    snapshot::{BandView, SeriesView, SizesView, SlowIo, WorkloadUsage, WorkloadView},
};
use serde_json::json;

use crate::support::{
    fails,
    history::filled,
    is_refused, run, run_in_400_mib,
    server::BackgroundServer,
    server_of,
    snapshots::{serve_config, snapshot},
    text, unwrapped, works,
};

pub(crate) const MINUTES: u64 = 24 * 60;

/// The minute of the stall, counted from the end of the day.
pub(crate) const STALL: u64 = 5 * 60;

/// The workload that waited for the stalled drive.
const POSTGRES: &str = "/system.slice/postgresql.service";

/// The file of the slowest read.
const FILE: &str = "/var/lib/postgresql/16/main/base/16384/2619";

/// The stalled drive.
pub(crate) const DRIVE: &str = "nvme3n1";

/// The last full minute.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 60 * 60
}

pub(crate) fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn add(series: &mut SeriesView, index: i32, count: u64, ns: u128) {
    series.bytes += 4096 * count;
    for histogram in &mut series.histograms[2..] {
        let buckets = vec![(index, count)];
        histogram.add(&Histogram { buckets, sum_ns: ns * u128::from(count), ..Histogram::new() });
    }
}

/// A day of 8 drives, each with 60 reads of one millisecond per minute. In the minute of the stall, one drive has 7 reads of 4 s,
/// and a write on another drive fails.
pub(crate) fn day(now: u64) -> SharedHistory {
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
                let latency = Histogram { buckets: vec![(4, 7)], sum_ns: 28_000_000_000, ..Histogram::new() };
                view.series[0].sizes = Some(SizesView {
                    requests: SizeHistogram { buckets: vec![(12, 7)], ..SizeHistogram::default() },
                    bands: vec![BandView { size: "le_4KiB".into(), device: latency.clone().into() }],
                });
                snapshot.workloads = Some(vec![WorkloadView {
                    usage: vec![WorkloadUsage {
                        device: DRIVE.into(),
                        op: "read".into(),
                        bytes: 7 * 4096,
                        errors: 0,
                        queue_ns: 0,
                        device_ns: 28_000_000_000,
                        latency: latency.into(),
                    }],
                    ..WorkloadView::new(POSTGRES, &Identity::of_path(POSTGRES), snapshot.started)
                }]);
            }
        }
        if minute == MINUTES - STALL + 1 {
            snapshot.devices[5].series[1].errors = [("medium".into(), 1)].into();
            let stalled = SlowIo {
                number: 1,
                completed: snapshot.taken - Duration::from_secs(20),
                device: DRIVE.into(),
                op: "read".into(),
                sector: 4096,
                bytes: 4096,
                status: "ok".into(),
                latencies: [
                    None,
                    None,
                    Some(Duration::from_millis(3_999)),
                    Some(Duration::from_millis(3_999)),
                ],
                cpu: 2,
                workload: Some(POSTGRES.into()),
                names: IoNames {
                    class: Some(class::FILE.into()),
                    file: Some(IoFile { path: FILE.into(), ..IoFile::default() }),
                    process: Some(IoProcess {
                        id: 4711,
                        command: "postgres".into(),
                        known_by: "waiter".into(),
                    }),
                    ..IoNames::default()
                },
            };
            snapshot.slow = [stalled].into();
        }
        snapshot.health.durations.zero += 1;
        history.record(&Arc::new(snapshot.clone()), Duration::from_secs(1000 + 60 * minute));
    }
    history
}

fn biolat(history: SharedHistory) -> SocketAddr {
    BackgroundServer::of_history(None, history).address
}

/// The output of a command that asks this daemon.
fn of(address: SocketAddr, arguments: &[&str]) -> String {
    works(&[arguments, &["--host", &address.to_string()]].concat())
}

/// A time in this host's time zone, as formatted by `date`.
pub(crate) fn date(seconds: u64, format: &str) -> String {
    let output =
        Command::new("date").args(["-d", &format!("@{seconds}"), &format!("+{format}")]).output().unwrap();
    text(&output.stdout).trim().to_owned()
}

#[test]
fn finds_the_stall() {
    let now = now();
    let address = biolat(day(now));
    let stall = now - 60 * STALL;

    // Find the stall without knowing when it happened.
    let worst = of(address, &["worst"]);
    let lines: Vec<_> = worst.lines().collect();
    assert!(lines[0].starts_with("the history of biolat-daemon "), "{worst}");
    let row = lines.iter().find(|line| line.contains(DRIVE)).unwrap();
    assert_eq!(
        lines.iter().position(|line| line == row),
        Some(lines.iter().position(|l| l.starts_with("begin")).unwrap() + 1),
        "{worst}"
    );
    let row: Vec<_> = row.split_whitespace().collect();
    let time = date(stall, "%Y-%m-%d %H:%M:%S");
    let completed = date(stall + 40, "%H:%M:%S");
    let expected = format!("{time} 60 s {DRIVE} read 4.00 s 67 - {completed} postgres[4711] {FILE}");
    assert_eq!(row.join(" "), expected, "{worst}");
    let failed: Vec<_> =
        worst.lines().filter(|line| line.contains("nvme5n1  ") && line.contains("write")).collect();
    assert_eq!(failed.len(), 1, "{worst}");

    // Find it by its time of day.
    let window = of(address, &["at", &date(stall, "%H:%M"), "--for", "5m", "-D"]);
    assert!(window.contains(&format!("{time} to {}, 300 s", date(stall + 300, "%H:%M:%S"))), "{window}");
    let names = format!("  postgresql.service  postgres[4711]  {FILE}\n");
    assert!(window.contains("Slowest I/Os:") && window.contains(&names), "{window}");
    assert!(window.contains("Findings in 300 s:"), "{window}");
    // 8 drives with 60 reads a minute.
    assert!(window.matches("  300 I/O in ").count() == 7 && window.contains("  307 I/O in "), "{window}");

    // hist prints the same.
    let at = ["--at", &date(stall, "%H:%M"), "--for", "5m", "-D"];
    assert_eq!(of(address, &[&["hist"], &at[..]].concat()), window);

    // By size and by workload, as in live windows. I/O that was not counted by workload is attributed to `other`.
    let at_stall = ["--at", &date(stall, "%H:%M"), "--for", "1m"];
    let sizes = of(address, &[&["sizes"], &at_stall[..]].concat());
    assert!(sizes.contains(&format!("{DRIVE} read: device latency by size")), "{sizes}");
    let columns = |line: &str| line.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
    assert!(sizes.lines().any(|line| columns(line) == "up to 4 KiB 7 4.00"), "{sizes}");
    let who = of(address, &[&["who"], &at_stall[..]].concat());
    let rows: Vec<_> = who.lines().skip_while(|line| !line.starts_with(DRIVE)).skip(2).collect();
    assert!(rows[0].starts_with("  postgresql.service  ") && rows[1].starts_with("  other  "), "{who}");
    assert!(rows.iter().any(|row| row.starts_with("  67 I/O in 60 s")), "{who}");

    // As JSON, minute by minute: only one minute has the stall.
    let since = stall - 120;
    let (since, until) = (since.to_string(), (since + 300).to_string());
    let json = of(address, &["since", &since, "--until", &until, "-jD", "--every", "60"]);
    assert_eq!(of(address, &["hist", "--since", &since, "--until", &until, "-jD", "60"]), json);
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
    let worst = of(address, &["worst", "-j"]);
    let first: serde_json::Value = serde_json::from_str(worst.lines().next().unwrap()).unwrap();
    assert_eq!((first["device"].as_str(), first["latency"].as_f64()), (Some(DRIVE), Some(3.999)));
    assert_eq!((&first["file"]["path"], &first["process"]["id"]), (&json!(FILE), &json!(4711)));
    // For one device only.
    assert!(!of(address, &["worst", "-d", "nvme0n1"]).contains(DRIVE));
}

#[test]
fn reports_what_is_not_kept() {
    let now = now();
    let address = biolat(day(now));
    let before = of(address, &["at", &(now - 60 * MINUTES - 600).to_string()]);
    let begins = format!("the history begins at {}", date(now - 60 * MINUTES, "%Y-%m-%d %H:%M:%S"));
    assert!(unwrapped(&before).contains(&format!("nothing is kept from that time: {begins}")), "{before}");
    let _ = of(address, &["at", &now.to_string(), "--for", "5m"]);
    let output = run(&["at", &(now + 3600).to_string(), "--host", &address.to_string()]);
    fails(&output, &["is in the future"]);
    let off = BackgroundServer::start(None, |seen| Service::new(seen, serve_config())).address;
    fails(&run(&["worst", "--host", &off.to_string()]), &["--history off disables the history"]);
    let old = server_of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").to_string();
    let output = run(&["at", "-1h", "--host", &old]);
    fails(&output, &["has no /api/v1/history", "a version older than", "`biolat at`"]);
}

/// A response larger than the limit for other documents is read one interval at a time.
#[test]
fn reads_answers_of_any_size() {
    let (history, _) = filled(30, 100);
    let address = biolat(history).to_string();
    let output = run_in_400_mib("\"$0\" since -1h --host \"$1\" -jDF --every 5", &[&address]);
    let json = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(json.len() > 20 << 20, "{} bytes", json.len());
    let mut ios = 0;
    for line in json.lines() {
        let window: serde_json::Value = serde_json::from_str(line).unwrap();
        let blocks = window["blocks"].as_array().unwrap();
        ios += blocks.iter().map(|block| block["ios"].as_u64().unwrap()).sum::<u64>();
    }
    // In each of 160 buckets, every collection adds one I/O more than the previous one.
    assert_eq!((json.lines().count(), ios), (100, 30 * 160 * (100 * 101 / 2)));
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"version\":1,\"biolat\":\"0.1.0\",\"host\":\"db1\",\
                    \"interval\":5,\"from\":0,\"to\":1,\"complete_from\":0,\"ten_seconds_from\":0,\"collections_from\":0";

/// Each is rejected with a one-line error, promptly and in bounded memory.
#[test]
fn rejects_invalid_histories() {
    let with = |rest: &str| format!("{HEAD}{rest}");
    let unavailable =
        |line: &str| format!("HTTP/1.1 503 Oops\r\nContent-Length: {}\r\n\r\n{line}", line.len());
    for (answer, expected) in [
        (
            unavailable("too many clients read the history\n"),
            "503 Service Unavailable: too many clients read the history",
        ),
        (unavailable("no snapshot yet\n"), "503 Service Unavailable: no snapshot yet"),
        (with("}"), "malformed answer: missing field `intervals`"),
        (with(",\"intervals\":[]}x"), "malformed answer: trailing characters"),
        (with(",\"intervals\":[{}]}"), "malformed answer: missing field"),
        (with(",\"intervals\":["), "malformed answer: EOF"),
        (
            with(&format!(",\"intervals\":[{{\"began\":\"{}", "x".repeat(40 << 20))),
            "an interval is larger than 16 MiB",
        ),
        (with(&format!(",\"x\":\"{}", "x".repeat(40 << 20))), "an interval is larger than 16 MiB"),
        (HEAD.replace("\"version\":1", "\"version\":2") + ",\"intervals\":[]}", "has version 2 of the API"),
        (HEAD.replace("\"interval\":5", "\"interval\":0") + ",\"intervals\":[]}", "it collects every 0 s"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello".to_owned(), "not a biolat history"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}".to_owned(), "not a biolat history"),
        (
            HEAD.replace("Connection: close", "Content-Length: 9000"),
            "the daemon aborts an answer after two minutes",
        ),
    ] {
        let address = server_of(answer.into_bytes().leak()).to_string();
        let output = run_in_400_mib("\"$0\" since -1h --host \"$1\"", &[&address]);
        fails(&output, &[expected]);
    }
}

#[test]
fn rejects_invalid_options() {
    for (arguments, expected) in [
        (&["at", "25:00", "--host", "db1"][..], "give a time as in 03:00"),
        (&["hist", "--at", "03:00", "--since", "02:00"], "cannot be used with"),
        (&["who", "--until", "02:00"], "--since"),
        (&["worst", "--who"], "unexpected argument '--who'"),
        (&["cpus", "--at", "03:00"], "unexpected argument '--at'"),
        (&["hist", "--at", "03:00", "5", "3"], "leave out COUNT and -T"),
        (&["who", "--since", "03:00", "-T"], "leave out COUNT and -T"),
    ] {
        is_refused(&run(arguments), &[expected]);
    }
}
