//! `biolat` without a command: what stands out, in sentences.

use std::{
    process::Stdio,
    thread,
    time::{Duration, SystemTime},
};

use biolat_daemon::http::{ServeConfig, Service};

use crate::{
    live::{READS, biolat, collection},
    support::{
        command, ends_on_ctrl_c, is_refused, run, server::BackgroundServer, snapshots::serve_config,
        unwrapped, works,
    },
};

#[test]
fn prints_findings_as_sentences() {
    let address = biolat(None).to_string();
    let stdout = works(&["--host", &address, "--for", "1s"]);
    let words = unwrapped(&stdout);
    assert!(words.contains(&format!(" on example at http://{address}, interval 200 ms")), "{stdout}");
    // 40 reads in 200 ms, each of which takes about a millisecond.
    let summary = stdout.lines().find(|line| line.contains(" I/Os per second")).unwrap();
    let (_, figures) = summary.split_once(": ").unwrap();
    let (rate, p99) =
        figures.strip_prefix("1 device, ").unwrap().split_once(" I/Os per second, p99 ").unwrap();
    assert_eq!((rate, p99), ("200", "935 us"), "{stdout}");
    let findings: Vec<_> = stdout.lines().skip_while(|line| *line != summary).skip(1).collect();
    assert!(findings[0].starts_with("- ") && stdout.contains("Nothing stands out"), "{stdout}");
    assert!(stdout.is_ascii() && stdout.lines().all(|line| line.len() <= 80), "{stdout}");
    assert!(!stdout.contains("every device and op"), "no histogram: {stdout}");
}

#[test]
fn json_is_the_window() {
    let address = biolat(None).to_string();
    let stdout = works(&["--host", &address, "--for", "400ms", "-j"]);
    let window: serde_json::Value = serde_json::from_str(&stdout).unwrap();
    let collections = (window["seconds"].as_f64().unwrap() / 0.2).round() as u64;
    assert!(collections >= 2, "{window}");
    assert_eq!(
        (&window["host"], &window["blocks"][0]["ios"]),
        (&"example".into(), &(READS * collections).into())
    );
}

/// The collections after the fifth are from a restarted daemon.
#[test]
fn continues_after_a_restart() {
    let started = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
    let server = BackgroundServer::start(Some(collection(1, started)), |seen| {
        Service::new(seen, ServeConfig { interval: Duration::from_millis(200), ..serve_config() })
    });
    let address = server.address.to_string();
    server.keep_sending(2, move |number| match number.checked_sub(5) {
        None | Some(0) => collection(number, started),
        Some(since) => collection(since, started + Duration::from_secs(1)),
    });
    let stdout = works(&["--host", &address, "--for", "3s"]);
    let summary = stdout.lines().find(|line| line.contains(" I/Os per second")).unwrap();
    let (length, figures) = summary.split_once(" s since the restart of biolat: ").unwrap();
    assert!(length.parse::<f64>().unwrap() >= 1.5, "{stdout}");
    // The zero bucket has one more read, so the rounded rate can be 200 or 201.
    let rate = figures.split_once(", ").unwrap().1.split_once(" I/Os per second").unwrap().0;
    assert!(["200", "201"].contains(&rate), "{stdout}");
}

#[test]
fn ctrl_c_ends_the_measurement() {
    let address = biolat(None).to_string();
    let mut command = command(&["--host", &address, "--for", "1h"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_millis(1500));
    ends_on_ctrl_c(child);
}

#[test]
fn length_before_a_command_is_an_error() {
    is_refused(&run(&["--for", "10s", "hist"]), &["--for before a command has no effect"]);
    is_refused(&run(&["--for", "soon"]), &["--for"]);
}
