//! Runs fio on two devices, one of which stalls for four seconds, then finds the stall with every kind of query. Lasts half a
//! minute, or `BIOLAT_HISTORY_MINUTES`.

use std::{
    fs,
    process::Command,
    thread,
    time::{Duration, Instant, UNIX_EPOCH},
};

use biolat_common::series::Phase;
use biolat_model::{
    api::ApiHistory,
    histogram::Histogram,
    period::Period,
    snapshot::{DeviceView, SeriesView, Snapshot},
};
use serde_json::Value;

use crate::support::{
    Folder,
    awake::Awake,
    daemon::{Daemon, biolat, wait_for},
    diskstats::{GROUPS, Stat},
    fio::Writers,
    freezable::Freezable,
    http,
    inflight::since_epoch,
    loop_device::LoopDevice,
    settled::{settled, tally},
};

const STALL: Duration = Duration::from_secs(4);

/// Duration of the stall: the file system is frozen for `STALL`, plus the time for freezing and thawing.
const STALLED: std::ops::Range<f64> = 3.9..6.0;

/// Number of writes that stall at the same time.
const DEPTH: u32 = 4;

#[test]
#[ignore = "needs root, fio, ext4 and fsfreeze: cargo xtask test"]
fn finds_stall_and_sums_are_exact() {
    let minutes: f64 =
        std::env::var("BIOLAT_HISTORY_MINUTES").map_or(0.25, |minutes| minutes.parse().unwrap());
    let half = Duration::from_secs_f64(30.0 * minutes);
    let (stalling, steady) = (Freezable::attach("stalling"), LoopDevice::attach("steady", true));
    let (name, other) = (stalling.device.name.as_str(), steady.name.as_str());
    let daemon = Daemon::start(&["--interval", "500ms", "--device", &format!("{name}|{other}")]);
    let _awake = Awake::all_cpus();
    let began = since_epoch();
    let before = [name, other].map(|device| settled(&daemon, device));

    let stalled_at = {
        let seconds = (2 * half + STALL).as_secs() + 30;
        let _writers = [&stalling.device, &steady]
            .map(|device| Writers::start_for(&device.path(), DEPTH, u32::try_from(seconds).unwrap()));
        thread::sleep(half);
        let frozen = stalling.freeze();
        let stalled_at = since_epoch();
        thread::sleep(STALL);
        drop(frozen);
        thread::sleep(half);
        stalled_at
    };
    let after = [name, other].map(|device| settled(&daemon, device));
    let snapshot: Snapshot = get(&daemon, "/api/v1/snapshot");
    wait_for("an interval after the last I/O", || {
        let history: ApiHistory = get(&daemon, "/api/v1/history?from=-10s");
        history.intervals.last().is_some_and(|interval| interval.ended > snapshot.taken)
    });
    let ended = since_epoch();

    // The API.
    let asked = Instant::now();
    let history: ApiHistory = get(&daemon, "/api/v1/history?from=0");
    eprintln!("{} intervals in {:?}", history.intervals.len(), asked.elapsed());
    assert_sums(&history.intervals, &snapshot);
    for ((device, before), after) in [name, other].into_iter().zip(&before).zip(&after) {
        let grown = tally(device, before, after);
        let within = intervals_since(&history, began);
        let missed = grown.missed + grown.unaccounted;
        let counted = ios(within, device);
        let accounted: u64 = grown.completions.iter().sum();
        eprintln!("{device}: {counted} I/Os in intervals, {accounted} in diskstats, {missed} missed or lost");
        assert!(counted > 100 && counted + missed == accounted);
        assert_bytes(within, device, &before.diskstats, &after.diskstats, missed);
    }
    let stall = history.intervals.iter().flat_map(|interval| &interval.slow);
    let stall: Vec<_> =
        stall.filter(|io| io.latencies[Phase::Total as usize] > Some(Duration::from_secs(3))).collect();
    assert!(stall.iter().all(|io| io.device == name && io.op == "write"), "{stall:?}");
    assert!((1..=DEPTH as usize).contains(&stall.len()), "{stall:?}");

    // The terminal tool, with the daemon and with a saved file.
    let folder = Folder::new("saved-history", true);
    let file = folder.0.join("history.gz");
    let (address, file) = (daemon.address.to_string(), file.to_str().unwrap());
    let saving = Instant::now();
    let about = output(&["save", file, "--host", &address]);
    eprintln!("{about}{} bytes in {:?}", fs::metadata(file).unwrap().len(), saving.elapsed());
    let (from, to) = (format!("{:.6}", began.as_secs_f64()), format!("{:.6}", ended.as_secs_f64()));
    let at = format!("{:.6}", stalled_at.as_secs_f64());
    let ways: [&[&str]; 5] = [
        &["worst", "-j", "--since", &from, "--until", &to],
        &["since", &from, "--until", &to, "-jDF"],
        &["since", &from, "--until", &to, "-jD", "--every", "5"],
        &["at", &at, "--for", "10s", "-DF"],
        &["worst", "--since", &from, "--until", &to],
    ];
    for source in [["--host", &address], ["--file", file]] {
        let shown = ways.map(|way| output(&[way, &source[..]].concat()));
        assert_worst(&shown[0], name, stalled_at);
        let whole = windows(&shown[1]);
        assert_eq!(whole.len(), 1);
        let counted = |device| ios(intervals_since(&history, began), device);
        for device in [name, other] {
            assert_eq!(ios_of(&whole, device), counted(device), "{source:?}");
            assert_eq!(ios_of(&windows(&shown[2]), device), counted(device), "{source:?}: in windows of 5 s");
        }
        let block = whole[0]["blocks"].as_array().unwrap().iter();
        let mut slow = block.filter(|block| block["latency"]["total"]["max"].as_f64() > Some(3.0));
        let only = (slow.next().unwrap(), slow.next());
        assert_eq!((&only.0["device"], &only.0["op"], only.1), (&name.into(), &"write".into(), None));
        let text = &shown[3];
        let ios = text.split_once("Slowest I/Os:").unwrap().1;
        let first = ios.lines().find(|line| line.contains(" write ")).unwrap();
        assert!(first.contains(&format!(" {name} ")), "{text}");
        let found = shown[4].lines().find(|line| line.contains(" write ")).unwrap();
        assert!(found.contains(&format!(" {name} ")), "{}", shown[4]);
    }
    // No more I/O arrives, so the sums no longer change.
    for way in [ways[1], ways[0]] {
        let outputs =
            [["--host", &address], ["--file", file]].map(|source| output(&[way, &source[..]].concat()));
        assert_eq!(outputs[0], outputs[1], "{way:?}");
    }
}

pub(crate) fn get<T: serde::de::DeserializeOwned>(daemon: &Daemon, path: &str) -> T {
    let answer = http::get(daemon.address, path, "").unwrap();
    assert_eq!(answer.status, 200, "{}", answer.head);
    serde_json::from_slice(&answer.body).unwrap()
}

fn output(arguments: &[&str]) -> String {
    let output = Command::new(biolat()).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn windows(json: &str) -> Vec<Value> {
    json.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns a device's I/Os from the output of `-jD`, or over all ops from `-jDF`.
fn ios_of(windows: &[Value], device: &str) -> u64 {
    let blocks = windows.iter().flat_map(|window| window["blocks"].as_array().unwrap());
    blocks.filter(|block| block["device"] == device).map(|block| block["ios"].as_u64().unwrap()).sum()
}

fn intervals_since(history: &ApiHistory, began: Duration) -> &[Period] {
    let first = history.intervals.partition_point(|interval| interval.ended < UNIX_EPOCH + began);
    &history.intervals[first..]
}

fn ops<'a>(intervals: &'a [Period], device: &'a str) -> impl Iterator<Item = &'a SeriesView> {
    let devices = intervals.iter().flat_map(|interval| &interval.devices);
    devices.filter(move |found| found.device.name == device).flat_map(|device| &device.series)
}

pub(crate) fn ios(intervals: &[Period], device: &str) -> u64 {
    ops(intervals, device).map(|op| op.histograms[Phase::Total as usize].count()).sum()
}

/// Asserts that the sum over all intervals equals the counters, bucket by bucket.
pub(crate) fn assert_sums(intervals: &[Period], snapshot: &Snapshot) {
    for DeviceView { device, series, .. } in &snapshot.devices {
        for op in series {
            let of_op = || ops(intervals, &device.name).filter(|found| found.op == op.op);
            let (device, name) = (&device.name, &op.op);
            assert_eq!(of_op().map(|op| op.bytes).sum::<u64>(), op.bytes, "{device} {name}");
            for phase in [Phase::Queue, Phase::Device, Phase::Total] {
                let mut sum = Histogram::new();
                of_op().for_each(|op| sum.add(&op.histograms[phase as usize]));
                assert_eq!(sum, op.histograms[phase as usize], "{device} {name}: {phase:?}");
            }
        }
    }
}

/// Asserts that the intervals contain all bytes in the disk statistics, unless I/O was missed.
fn assert_bytes(intervals: &[Period], device: &str, before: &Stat, after: &Stat, missed: u64) {
    for group in GROUPS {
        let (Some(before), Some(after)) = (before.bytes(group), after.bytes(group)) else { continue };
        let in_group = |op: &&SeriesView| group.ops().any(|name| name == op.op);
        let counted: u64 = ops(intervals, device).filter(in_group).map(|op| op.bytes).sum();
        let is_exact = counted == after - before;
        assert!(is_exact || missed > 0 && counted < after - before, "{device} {}: {counted}", group.name);
    }
}

/// Asserts that the stall ranks first in the output of `worst`.
fn assert_worst(json: &str, device: &str, stalled_at: Duration) {
    let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!((&first["device"], &first["op"]), (&device.into(), &"write".into()), "{first}");
    assert!(STALLED.contains(&first["latency"].as_f64().unwrap()), "{first}");
    let completed = first["completed"].as_f64().unwrap() - stalled_at.as_secs_f64();
    assert!(STALLED.contains(&completed), "{first}: {completed} s after it began");
}
