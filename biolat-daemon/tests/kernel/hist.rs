//! `biolat hist` on real I/O agrees with the disk statistics, the daemon and biolatency.

use std::{
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::support::{
    awake::Awake,
    biolat::Biolat,
    daemon::{Daemon, biolat},
    diskstats::{READ, Stat, WRITE},
    figures::grown,
    load::{self, Target},
    loop_device::LoopDevice,
};

const READS: u64 = 1000;

fn lines(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

/// Sums a number over all windows, for one device and op.
fn sum(lines: &[Value], device: &str, op: &str, number: impl Fn(&Value) -> u64) -> u64 {
    let blocks = lines.iter().flat_map(|line| line["blocks"].as_array().unwrap());
    blocks.filter(|block| block["device"] == device && block["op"] == op).map(number).sum()
}

fn in_buckets(block: &Value, phase: &str) -> Vec<(f64, u64)> {
    let buckets = block["latency"][phase]["buckets"].as_array().unwrap();
    buckets
        .iter()
        .map(|bucket| (bucket[1].as_f64().unwrap_or(f64::MAX), bucket[2].as_u64().unwrap()))
        .collect()
}

/// Windows from a separate probe and from a daemon's API agree with the daemon's /metrics and diskstats, except for completions
/// that one of the probes missed.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn hist_agrees_with_diskstats_and_daemon() {
    let device = LoopDevice::attach("hist", true);
    let name = device.name.as_str();
    let daemon = Daemon::of(name);
    let awake = Awake::all_cpus();
    Target::open(&device.path()).read(1);
    // Otherwise the first figures from the daemon could predate this read.
    daemon.fresh();
    let (host, arguments) = (daemon.address.to_string(), ["hist", "-jDF", "300ms", "-d", name]);
    let own = Biolat::start("own", &arguments);
    let remote = Biolat::start("remote", &[&arguments[..], &["--host", &host]].concat());
    // Both have their first figures by now, so earlier I/O is not in the first window.
    let (before, stat_before) = (daemon.fresh(), Stat::of(name));
    load::mixed(&device.path());
    let (after, stat) = (daemon.fresh(), Stat::of(name));
    drop(awake);
    thread::sleep(Duration::from_millis(900));
    for (running, is_same_probe) in [(own, false), (remote, true)] {
        let text = running.end();
        let windows = lines(&text);
        assert!(windows.len() >= 2, "windows: {}", windows.len());
        for (op, group) in [("read", READ), ("write", WRITE)] {
            let ios = sum(&windows, name, op, |block| block["ios"].as_u64().unwrap());
            let missed = sum(&windows, name, op, |block| block["unseen"][op].as_u64().unwrap_or(0));
            let missed_there = after.missed_of(name, group) - before.missed_of(name, group);
            // Two separate probes can each miss completions that the other counts.
            let differ = if is_same_probe { 0 } else { missed + missed_there };
            if op == "read" {
                assert_eq!(ios + missed, stat.completions(group) - stat_before.completions(group), "{text}");
                assert_eq!(ios + missed, load::READS);
                assert!(missed * 200 <= load::READS, "{missed} missed");
                let bytes = sum(&windows, name, op, |block| block["bytes"].as_u64().unwrap());
                let accounted = stat.bytes(group).unwrap() - stat_before.bytes(group).unwrap();
                assert!(bytes == accounted || missed > 0 && bytes < accounted, "{bytes} of {accounted}");
            }
            for phase in ["queue", "device", "total"] {
                let metrics = |figures: &crate::support::figures::Figures| figures.latencies(phase, name, op);
                let counted = sum(&windows, name, op, |block| {
                    in_buckets(block, phase).iter().map(|(_, count)| count).sum::<u64>()
                });
                let expected = metrics(&after) - metrics(&before);
                assert!(counted.abs_diff(expected) <= differ, "{op} {phase}: {counted}, {expected}");
            }
            let earlier = before.histogram("total", name, op);
            let grown = grown(earlier, after.histogram("total", name, op).unwrap());
            for &(index, count) in &grown {
                let upper = (f64::from(index) / 8.0).exp2();
                let within = |holds: &dyn Fn(f64) -> bool| {
                    sum(&windows, name, op, |block| {
                        let buckets = in_buckets(block, "total");
                        buckets.iter().filter(|(bound, _)| holds(*bound / upper)).map(|(_, n)| n).sum()
                    })
                };
                if is_same_probe {
                    let here = within(&|ratio| (ratio - 1.0).abs() < 1e-9);
                    assert_eq!(here, count, "{op}: bucket {index}");
                } else {
                    // The two probes read the clock one after the other, so latencies differ by at most one bucket, except for a
                    // few with an interruption in between.
                    let below: u64 = grown.iter().filter(|(i, _)| *i <= index).map(|(_, n)| n).sum();
                    let (least, most) = (within(&|ratio| ratio < 0.95), within(&|ratio| ratio < 1.15));
                    let slack = load::READS / 100;
                    assert!(
                        below + slack >= least && below <= most + slack,
                        "{op}, up to bucket {index}: {below}"
                    );
                }
            }
        }
    }
}

/// Parses biolatency's rows: an upper bound in microseconds, and a count.
fn biolatency_rows(text: &str) -> Vec<(u64, u64)> {
    let row = |line: &str| {
        let (bounds, rest) = line.split_once(':')?;
        let (_, upper) = bounds.split_once("->")?;
        let count = rest.split('|').next()?.trim().parse().ok()?;
        Some((upper.trim().parse::<u64>().ok()? + 1, count))
    };
    text.lines().filter_map(row).collect()
}

/// biolatency uses different tracepoints, and its own clock and arithmetic.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn hist_agrees_with_biolatency() {
    // Backed by a disk, to spread latencies over many rows.
    let device = LoopDevice::attach("peer", false);
    let name = device.name.as_str();
    let target = Target::open(&device.path());
    target.fill();
    let _awake = Awake::all_cpus();
    let seconds = 10;
    let peer = Command::new("timeout")
        .args(["20", "biolatency", "-d", name, &seconds.to_string(), "1"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let running = Biolat::start("peer", &["hist", "-jD", "-d", name]);
    thread::sleep(Duration::from_millis(700));
    target.read(READS);
    let Output { stdout, .. } = peer.wait_with_output().unwrap();
    let windows = lines(&running.end());
    let rows = biolatency_rows(&String::from_utf8(stdout).unwrap());
    let block = &windows[0]["blocks"][0];
    let ours = in_buckets(block, "device");
    let all: u64 = rows.iter().map(|(_, count)| count).sum();
    // If the kernel ran no BPF programs for a completion, both tools missed it, and the audit found it.
    let (ios, missed) = (block["ios"].as_u64().unwrap(), block["unseen"]["read"].as_u64().unwrap_or(0));
    assert_eq!(ios + missed, READS, "{block}");
    assert!(all.abs_diff(ios) <= missed, "biolatency {all}, biolat {ios}, {missed} missed: {rows:?}");
    assert!(rows.iter().filter(|(_, count)| *count > 0).count() >= 2, "all in one row: {rows:?}");
    let mut below = 0;
    for (upper, count) in rows {
        below += count;
        // A bucket is 9 % wide, and the two clocks are read a few hundred nanoseconds apart.
        let up_to = |seconds: f64| ours.iter().filter(|(b, _)| *b <= seconds).map(|(_, n)| n).sum::<u64>();
        let seconds = upper as f64 / 1e6;
        let slack = READS / 100;
        let (least, most) = (up_to(seconds / 1.15 - 1e-6), up_to(seconds * 1.15 + 1e-6));
        assert!(
            below + slack >= least && below <= most + slack,
            "at most {upper} us: biolatency {below}, biolat between {least} and {most}"
        );
    }
}

/// Returns a command's output in a terminal of this width, which `script` emulates.
fn on_a_terminal(width: usize, environment: &[(&str, &str)], arguments: &str) -> String {
    let program = biolat();
    let line = format!("stty cols {width}; exec {} {arguments}", program.to_str().unwrap());
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(Stdio::null()).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("TERM", "xterm-256color");
    let output = command.envs(environment.iter().copied()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).replace("\r\n", "\n");
    // Keeps the text that replaced the progress line.
    let text: String = text.lines().map(|line| format!("{}\n", line.rsplit('\r').next().unwrap())).collect();
    assert!(output.status.success(), "{text}");
    text
}

/// Removes the escape sequences from a line.
fn without_colours(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        text.push_str(before);
        rest = after.split_once('m').map_or("", |(_, rest)| rest);
    }
    text + rest
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn output_adapts_to_terminal() {
    let device = LoopDevice::attach("terminal", true);
    let stop = load::StopFlag::default();
    thread::scope(|scope| {
        scope.spawn(|| {
            let target = Target::open(&device.path());
            while !stop.is_set() {
                target.read(20);
                target.write(5);
                thread::sleep(Duration::from_millis(1));
            }
        });
        let stopper = stop.set_on_drop();
        let utf8 = ("LANG", "C.UTF-8");
        for width in [80, 120] {
            for options in ["-DF 500ms 1", "-P 500ms 1", "--fine -QT 500ms 1"] {
                let text = on_a_terminal(width, &[utf8], &format!("hist {options} -d {}", device.name));
                assert!(text.contains('█') && text.contains("µs") && text.contains("\x1b["), "{text}");
                for line in text.lines().map(without_colours) {
                    assert!(line.chars().count() <= width, "{width}: {line}");
                }
                let widest = text.lines().map(|line| without_colours(line).chars().count()).max();
                assert!(widest > Some(width - 20), "does not use {width} columns: {text}");
            }
        }
        let arguments = format!("hist 500ms 1 -d {}", device.name);
        for environment in [&[("NO_COLOR", "1"), utf8][..], &[("TERM", "dumb"), utf8]] {
            let text = on_a_terminal(80, environment, &arguments);
            assert!(text.contains('█') && !text.contains("\x1b["), "{environment:?}: {text}");
        }
        for environment in [&[("LANG", "C")][..], &[("LC_ALL", "C"), utf8], &[]] {
            let text = on_a_terminal(80, environment, &arguments);
            assert!(
                text.is_ascii() && text.contains("***") && text.contains(" us"),
                "{environment:?}: {text}"
            );
        }
        let text = on_a_terminal(80, &[("NO_COLOR", "1"), utf8], &format!("--color always {arguments}"));
        assert!(text.contains("\x1b["), "{text}");
        drop(stopper);
    });
}
