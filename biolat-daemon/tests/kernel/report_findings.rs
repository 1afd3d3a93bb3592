//! What `report` says in words of devices whose latency is known.

use std::thread;

use crate::support::{load::Target, null_blk::NullBlk, report::Report};

const READS: u64 = 600;

/// Reads of each, four at a time.
fn read_all(disks: &[&NullBlk]) {
    thread::scope(|scope| {
        for disk in disks {
            for _ in 0..4 {
                scope.spawn(|| Target::open(&disk.path()).read(READS / 4));
            }
        }
    });
}

fn words(disks: &[&NullBlk], name: &str) -> String {
    let names: Vec<_> = disks.iter().map(|disk| disk.name.as_str()).collect();
    let report = Report::start(name, &["-d", &names.join(",")]);
    read_all(disks);
    let text = report.end();
    text.split("Findings in").nth(1).unwrap_or_else(|| panic!("{text}")).replace("\n  ", " ")
}

/// One of three takes twenty times as long as the others.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn the_slow_one_is_named() {
    let takes = |ns| NullBlk::with_latency(ns, &[("submit_queues", "2")]);
    let (one, slow, other) = (takes(2_000_000), takes(40_000_000), takes(2_000_000));
    let said = words(&[&one, &slow, &other], "slow");
    let expected = format!("{}: its reads are slower than those of 2 other devices of its kind", slow.name);
    assert!(said.contains(&expected), "{said}");
    let slowest = format!("The slowest of 3 devices with 500 I/Os or more is {}: p99 ", slow.name);
    assert!(said.contains(&slowest), "{said}");
    for quick in [&one, &other] {
        assert!(!said.contains(&format!("- {}: ", quick.name)), "{said}");
    }
}

/// A device with a place for one request, and four that want it.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn a_queue_that_waits_is_told() {
    let disk = NullBlk::with_latency(5_000_000, &[("submit_queues", "1"), ("hw_queue_depth", "1")]);
    std::fs::write(format!("/sys/block/{}/queue/scheduler", disk.name), "mq-deadline").unwrap();
    let said = words(&[&disk], "queue");
    assert!(said.contains("% of the total latency is time in the queue"), "{said}");
}
