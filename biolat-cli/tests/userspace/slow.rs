//! `biolat slow` against a server with a synthetic log.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    process::{Child, Stdio},
    time::{Duration, SystemTime},
};

use biolat_daemon::http::{ServeConfig, Service};
use biolat_model::{
    io_names::{IoFile, IoNames, IoProcess, class},
    snapshot::{SlowIo, Snapshot},
};

use crate::support::{
    command, fails, interrupt, is_refused, run,
    server::BackgroundServer,
    server_of,
    snapshots::{serve_config, snapshot},
    text,
};

/// I/Os alternate between sda and sdb. Every fourth one fails quickly; the others take 1.5 s or 3 s.
fn io(number: u64) -> SlowIo {
    let (total, status) = match number % 4 {
        0 => (Duration::from_millis(5), "medium"),
        2 => (Duration::from_millis(1500), "ok"),
        _ => (Duration::from_secs(3), "ok"),
    };
    SlowIo {
        number,
        completed: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000 + number),
        device: if number.is_multiple_of(2) { "sda".into() } else { "sdb".into() },
        op: "write".into(),
        sector: 8 * number,
        bytes: 4096,
        status: status.into(),
        latencies: [None, None, None, Some(total)],
        cpu: 1,
        workload: None,
        names: IoNames {
            class: Some(class::FILE.into()),
            file: Some(IoFile { path: "/base/2619".into(), mount: Some("/srv".into()), ..IoFile::default() }),
            process: Some(IoProcess {
                id: 4711,
                command: "post\u{1b}gres".into(),
                known_by: "waiter".into(),
            }),
            ..IoNames::default()
        },
    }
}

/// The snapshot of a collection: each adds two I/Os and two dropped ones. The log keeps 10.
fn collection(number: u64, started: SystemTime) -> Snapshot {
    let latest = 2 * number;
    let ios = (latest.saturating_sub(10) + 1..=latest).map(io).collect();
    Snapshot {
        interval: Duration::from_millis(200),
        started,
        taken: started + Duration::from_millis(200 * number),
        slow: ios,
        slow_dropped: latest,
        ..snapshot(1)
    }
}

/// A daemon with a collection every 200 ms, starting with the fifth.
fn biolat(slow: Option<Duration>) -> SocketAddr {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let server = BackgroundServer::start(Some(collection(5, started)), move |seen| {
        let config = ServeConfig { interval: Duration::from_millis(200), slow, ..serve_config() };
        Service::new(seen, config)
    });
    let address = server.address;
    server.keep_sending(6, move |number| collection(number, started));
    address
}

/// A running command and its output.
fn following(arguments: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(Result::unwrap))
}

const SECOND: Option<Duration> = Some(Duration::from_secs(1));

#[test]
fn follows_new_ios_until_ctrl_c() {
    let address = biolat(SECOND).to_string();
    let (child, mut lines) = following(&["slow", "--host", &address, "-d", "sda"]);
    // Two lines, one of which is wrapped.
    let about = lines.by_ref().take(3).collect::<Vec<_>>().join(" ");
    assert!(about.contains(&format!("on example at http://{address}, interval 200 ms")), "{about}");
    let shown = "I/Os that take at least 1 s or fail from now on";
    let expected = format!("{shown}; http://{address}/api/v1/slow has 5 earlier ones");
    assert!(about.contains(&expected), "{about}");
    let (mut slow, mut failed, mut dropped) = (0, 0, 0);
    for line in lines.by_ref().take(12) {
        if line.contains("I/Os were not recorded: too many at once") {
            dropped += 1;
        } else if line.contains("failed: medium") {
            let names = "failed: medium  post\u{fffd}gres[4711]  /srv/base/2619";
            assert!(line.contains(" 5.00 ms  CPU 1") && line.ends_with(names), "{line}");
            failed += 1;
        } else {
            assert!(
                line.contains(" sda       write   sector ") && line.contains("4.00 KiB  1.50 s"),
                "{line}"
            );
            slow += 1;
        }
    }
    assert!(slow >= 2 && failed >= 2 && dropped >= 2, "{slow}, {failed}, {dropped}");
    interrupt(&child);
    drop(lines);
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}

#[test]
fn json_lines_are_the_apis() {
    let address = biolat(SECOND).to_string();
    let (mut child, lines) = following(&["slow", "2s", "-j", "--host", &address]);
    let ios: Vec<SlowIo> = lines.take(8).map(|line| serde_json::from_str(&line).unwrap()).collect();
    assert!(ios.is_sorted_by(|before, after| before.number < after.number));
    let first = ios[0].number;
    let expected = (first..).filter(|number| number % 2 == 1 || number % 4 == 0).take(8).collect::<Vec<_>>();
    assert_eq!(ios.iter().map(|io| io.number).collect::<Vec<_>>(), expected);
    assert!(first > 10, "a new one");
    assert!(ios.iter().all(|io| io.status == "medium" || io.latencies[3] == Some(Duration::from_secs(3))));
    let _ = child.kill();
    let stderr = text(&child.wait_with_output().unwrap().stderr);
    assert!(stderr.contains("I/Os that take at least 2 s or fail from now on"), "{stderr}");
    assert!(stderr.contains("I/Os were not recorded: too many at once"), "{stderr}");
}

#[test]
fn reports_daemons_without_a_log() {
    let not_found = server_of(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").to_string();
    let follow = |address: &str| run(&["slow", "--host", address]);
    fails(&follow(&not_found), &["has no /api/v1/slow", "a version older than", "`biolat slow`"]);
    let off = biolat(None).to_string();
    fails(&follow(&off), &["no I/O is recorded there: that biolat-daemon runs with --slow off"]);
}

#[test]
fn rejects_invalid_options() {
    for (arguments, expected) in [
        (&["slow", "10ms"][..], "give a time from 33ms to 1000s"),
        (&["slow", "1s", "5"], "unexpected argument '5'"),
        (&["slow", "--phases"], "unexpected argument '--phases'"),
    ] {
        is_refused(&run(arguments), &[expected]);
    }
}
