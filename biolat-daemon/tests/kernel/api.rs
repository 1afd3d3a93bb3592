//! The API of a sandboxed daemon under load agrees with `/metrics`.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Write as _},
    net::TcpStream,
    process::Command,
    thread,
    time::Duration,
};

use biolat_common::series::Phase;
use biolat_model::{snapshot::Snapshot, text::time::unix_seconds};

use crate::support::{
    daemon::{self, Daemon, biolat, wait_for},
    figures::Figures,
    http,
    kernel::{self, Ability},
    load,
    loop_device::LoopDevice,
    native::decode,
};

fn snapshot(daemon: &Daemon, headers: &str) -> Option<(String, Snapshot)> {
    let answer = http::get(daemon.address, "/api/v1/snapshot", headers).unwrap();
    if answer.status == 304 {
        return None;
    }
    assert_eq!(answer.status, 200, "{}", answer.head);
    let tag = answer.head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap();
    Some((tag.replacen("w/", "W/", 1), serde_json::from_slice(&answer.body).unwrap()))
}

/// Returns the API's snapshot and the metrics of the same collection.
fn both(daemon: &Daemon) -> (Snapshot, Figures) {
    let mut found = None;
    wait_for("the same collection in both", || {
        let (figures, (_, snapshot)) = (Figures::scrape(daemon.address), snapshot(daemon, "").unwrap());
        let same = (figures.taken().as_secs_f64() - unix_seconds(snapshot.taken)).abs() < 1e-5;
        found = same.then_some((snapshot, figures));
        same
    });
    found.unwrap()
}

fn reads(snapshot: &Snapshot) -> u64 {
    let ops = snapshot.devices.iter().flat_map(|device| &device.series);
    ops.filter(|op| op.op == "read").map(|op| op.histograms[Phase::Total as usize].count()).sum()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn api_agrees_with_metrics_and_announces_collections() {
    let device = LoopDevice::attach("api", true);
    let daemon = Daemon::of(&device.name);
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    assert!(status.contains("Seccomp:\t2\n"), "{status}");
    let mut stream = TcpStream::connect(daemon.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET /api/v1/events HTTP/1.1\r\nHost: test\r\n\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);

    let (first, _) = both(&daemon);
    assert_eq!(first.host, std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim());
    // Does what the page does: on each event, fetches the snapshot unless it is already known.
    let (mut announced, mut fetched) = (BTreeSet::new(), vec![String::new()]);
    let mut next = || lines.find_map(|line| line.strip_prefix("id: ").map(str::to_owned)).unwrap();
    thread::scope(|scope| {
        let load = scope.spawn(|| load::mixed(&device.path()));
        while fetched.len() < 10 || !load.is_finished() {
            announced.insert(next());
            let known = &fetched[fetched.len() - 1];
            if let Some((tag, _)) = snapshot(&daemon, &format!("If-None-Match: {known}\r\n")) {
                assert_ne!(&tag, known);
                fetched.push(tag);
            }
        }
    });
    // A snapshot can be fetched before its event arrives.
    while fetched.iter().skip(1).any(|tag| !announced.contains(tag)) {
        assert!(
            announced.insert(next()) && announced.len() < 100,
            "fetched {fetched:?}, announced {announced:?}"
        );
    }
    wait_for("every read", || reads(&both(&daemon).0) >= reads(&first) + 4000);

    let (snapshot, figures) = both(&daemon);
    let shown = snapshot.devices.iter().map(|view| view.device.name.as_str()).collect::<Vec<_>>();
    assert_eq!(shown, [device.name.as_str()]);
    let mut series = 0;
    for op in &snapshot.devices[0].series {
        let labels = [("device", device.name.as_str()), ("op", op.op.as_str())];
        assert_eq!(op.bytes as f64, figures.value("biolat_io_bytes_total", &labels));
        for (phase, histogram) in ["queue", "device", "total"].into_iter().zip(&op.histograms[1..]) {
            let scraped = figures.histogram(phase, &device.name, &op.op).unwrap();
            assert_eq!(
                (histogram.count(), histogram.sum_seconds()),
                (scraped.sample_count, scraped.sample_sum)
            );
            let mut buckets = decode(scraped);
            buckets.retain(|(_, count)| *count > 0);
            // The last native bucket includes the overflow.
            assert!(histogram.overflow == 0 && histogram.buckets == buckets, "{phase} of {}", op.op);
            assert_eq!(histogram.zero, scraped.zero_count);
            series += 1;
        }
    }
    assert_eq!(series, figures.metrics("biolat_total_latency_seconds", &[]).len() * 3);

    let (status, took) = daemon.terminate();
    assert!(status.success() && took < Duration::from_secs(2), "{status}, {took:?}");
    assert_eq!(
        lines.filter(|line| !line.is_empty()).last().as_deref(),
        Some("0"),
        "the stream must end with the last chunk"
    );
}

/// In a pod, the kernel's host name is the pod's name.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn node_name_replaces_host_name() {
    let device = LoopDevice::attach("node-name", true);
    let mut command = daemon::command(&["--interval", "200ms", "--device", &device.name]);
    let daemon = Daemon::start_command(command.env("BIOLAT_NODE_NAME", "node1"));
    for path in ["/api/v1/snapshot", "/api/v1/slow", "/api/v1/history"] {
        let answer = http::get(daemon.address, path, "").unwrap();
        let document: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(document["host"], "node1", "{path}");
    }
    let host = daemon.address.to_string();
    let output = Command::new(biolat()).args(["hist", "--host", &host, "0.2", "1"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(" on node1 at http://127.0.0.1:"), "{shown}");
}

/// Without submission timestamps, admission latency needs io.cost, which no device here uses. A missing figure must not look like
/// a wait of zero.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn admission_is_available_with_submission_timestamps() {
    let is_known = kernel::has(Ability::SubmissionTimestamps);
    let device = LoopDevice::attach("admission", true);
    let daemon = Daemon::of(&device.name);
    load::mixed(&device.path());
    let (snapshot, figures) = both(&daemon);
    assert_eq!(figures.has_phase(&device.name, "admission"), is_known);
    let labels = [("device", device.name.as_str())];
    assert_eq!(figures.metrics("biolat_admission_latency_seconds", &labels).is_empty(), !is_known);
    assert_eq!(snapshot.devices[0].phases[Phase::Admission as usize], is_known);
    let output = thread::scope(|scope| {
        let host = daemon.address.to_string();
        let running = scope.spawn(move || {
            Command::new(biolat()).args(["hist", "--host", &host, "--phases", "3", "1"]).output().unwrap()
        });
        while !running.is_finished() {
            load::Target::open(&device.path()).read(20);
            thread::sleep(Duration::from_millis(10));
        }
        running.join().unwrap()
    });
    let text = String::from_utf8(output.stdout).unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    let missing = "the wait before a request exists (throttling, wait for a tag) is not recorded";
    assert_eq!(text.contains(missing), !is_known, "{text}");
    assert_eq!(text.contains("admission |"), is_known, "{text}");
}
