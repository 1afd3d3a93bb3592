//! The findings of `report` on devices whose latency is known.

use std::thread;

use crate::support::{load::Target, null_blk::NullBlk, report::Report};

const READS: u64 = 600;

/// Reads from each disk, four requests at a time.
fn read_all(disks: &[&NullBlk]) {
    thread::scope(|scope| {
        for disk in disks {
            for _ in 0..4 {
                scope.spawn(|| Target::open(&disk.path()).read(READS / 4));
            }
        }
    });
}

fn findings(disks: &[&NullBlk], name: &str) -> String {
    let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let report = Report::start(name, &["-d", &names.join(",")]);
    read_all(disks);
    let text = report.end();
    text.split("Findings in").nth(1).unwrap_or_else(|| panic!("{text}")).replace("\n  ", " ")
}

/// One of three disk_of twenty times as long as the others.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn the_slow_device_is_named() {
    let disk_of = |ns| NullBlk::with_latency(ns, &[("submit_queues", "2")]);
    let (one, slow, other) = (disk_of(2_000_000), disk_of(40_000_000), disk_of(2_000_000));
    let text = findings(&[&one, &slow, &other], "slow");
    let expected = format!("{}: its reads are slower than those of 2 other devices of its kind", slow.name);
    assert!(text.contains(&expected), "{text}");
    let slowest = format!("The slowest of 3 devices with 500 I/Os or more is {}: p99 ", slow.name);
    assert!(text.contains(&slowest), "{text}");
    for quick in [&one, &other] {
        assert!(!text.contains(&format!("- {}: ", quick.name)), "{text}");
    }
}

/// A device with a queue depth of 1, and four readers.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn time_in_the_queue_is_reported() {
    let disk = NullBlk::with_latency(5_000_000, &[("submit_queues", "1"), ("hw_queue_depth", "1")]);
    std::fs::write(format!("/sys/block/{}/queue/scheduler", disk.name), "mq-deadline").unwrap();
    let text = findings(&[&disk], "queue");
    assert!(text.contains("% of the total latency is time in the queue"), "{text}");
}
