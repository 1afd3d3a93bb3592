//! Devices with a configured latency: what is measured is at or above it, and agrees with fio.

use crate::support::{
    daemon::Daemon,
    figures::{grown, index_of, quantile_index, share_from},
    fio::Report,
    null_blk::NullBlk,
    settled::{compare, settled},
};

fn takes(ns: u64, requests: u32) {
    let seconds = ns as f64 / 1e9;
    let disk = NullBlk::with_latency(ns, &[("submit_queues", "2")]);
    let daemon = Daemon::of(&disk.name);
    let before = settled(&daemon, &disk.name);
    let report = Report::of_polled_reads(&disk.path(), requests);
    let after = settled(&daemon, &disk.name);
    let buckets = |phase: &str| {
        grown(
            before.figures.histogram(phase, &disk.name, "read"),
            after.figures.histogram(phase, &disk.name, "read").unwrap(),
        )
    };
    let share = share_from(&buckets("device"), seconds);
    let (ours, fio) = (quantile_index(&buckets("total"), 0.5), index_of(report.median()));
    let in_device = quantile_index(&buckets("device"), 0.5);
    println!(
        "{:.0} us: {share:.4} at or above; medians: fio's {:.1} us, bucket {fio}; total {ours}, device {in_device}, set {}",
        seconds * 1e6,
        report.median() * 1e6,
        index_of(seconds)
    );
    assert!(share >= 0.99, "{share} of the device latencies are at or above {seconds} s");
    // Unlike buckets, the sum is exact.
    let growth = compare(&disk.name, &before, &after);
    let (summed, count) = (growth.seconds("device", "read"), growth.latencies("device", "read"));
    assert!(summed >= seconds * count as f64, "{summed} s for {count} times {seconds} s");
    assert!((ours - fio).abs() <= 2, "the median is in bucket {ours}, fio's in {fio}");
    assert!((in_device - fio).abs() <= 2, "the device's median is in bucket {in_device}, fio's in {fio}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn of_100_us() {
    takes(100_000, 5000);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn of_1_ms() {
    takes(1_000_000, 2000);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn of_20_ms() {
    takes(20_000_000, 150);
}

/// Longer than the probe's common case handles.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn of_50_ms() {
    takes(50_000_000, 100);
}
