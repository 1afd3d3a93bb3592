//! Devices with a configured latency: measured latencies are at or above it, and agree with fio.

use std::thread;

use biolat_model::text::time::unix_seconds;

use crate::support::{
    daemon::Daemon,
    figures::{grown, index_of, quantile_index, share_from},
    fio::Report,
    inflight::since_epoch,
    load::Target,
    null_blk::NullBlk,
    settled::{compare, settled},
    slow_log::slow_ios,
};

fn check_latency(ns: u64, requests: u32) {
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
        "{:.0} us: {share:.4} at or above; medians: fio {:.1} us, bucket {fio}; total {ours}, device {in_device}, configured {}",
        seconds * 1e6,
        report.median() * 1e6,
        index_of(seconds)
    );
    assert!(share >= 0.99, "{share} of the device latencies are at or above {seconds} s");
    // Unlike buckets, the sum is exact.
    let growth = compare(&disk.name, &before, &after);
    let (summed, count) = (growth.seconds("device", "read"), growth.latencies("device", "read"));
    assert!(summed >= seconds * count as f64, "{summed} s for {count} times {seconds} s");
    assert!((ours - fio).abs() <= 2, "the total median is in bucket {ours}, fio's in {fio}");
    assert!((in_device - fio).abs() <= 2, "the device median is in bucket {in_device}, fio's in {fio}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn latency_of_100_us() {
    check_latency(100_000, 5000);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn latency_of_1_ms() {
    check_latency(1_000_000, 2000);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn latency_of_20_ms() {
    check_latency(20_000_000, 150);
}

/// Above the limit of the probe's common case.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn latency_of_50_ms() {
    check_latency(50_000_000, 100);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn records_each_io_of_2_s() {
    const IOS: [(&str, u64, usize); 5] = [
        ("read", 0, 4096),
        ("read", 1 << 11, 64 << 10),
        ("read", 9 << 11, 8192),
        ("write", 5 << 11, 4096),
        ("write", 7 << 11, 16 << 10),
    ];
    let disk = NullBlk::with_latency(2_000_000_000, &[("submit_queues", "2")]);
    let fast = NullBlk::with_latency(10_000_000, &[]);
    let daemon = Daemon::start(&["--interval", "200ms", "--device", "nullb.*", "--slow", "1s"]);
    let began = since_epoch();
    thread::scope(|scope| {
        for (op, sector, bytes) in IOS {
            let target = Target::open(&disk.path());
            scope.spawn(move || match op {
                "read" => target.try_read_at(sector * 512, bytes).unwrap(),
                _ => target.write_at(sector * 512, bytes),
            });
        }
        Target::open(&fast.path()).read(50);
    });
    let ended = since_epoch();
    settled(&daemon, &disk.name);
    assert_eq!(slow_ios(&daemon, &fast.name), []);
    let mut records = slow_ios(&daemon, &disk.name);
    records.sort_by_key(|record| record.sector);
    let found = records.iter().map(|record| (record.op.as_str(), record.sector, record.bytes as usize));
    let mut expected = IOS.to_vec();
    expected.sort_by_key(|(_, sector, _)| *sector);
    assert_eq!(found.collect::<Vec<_>>(), expected);
    for record in records {
        let [_, _, device, total] = record.latencies.map(|latency| latency.unwrap_or_default().as_secs_f64());
        assert!(device >= 2.0 && total >= device && total < 2.2, "{record:?}");
        assert!(
            (began.as_secs_f64() + 2.0..ended.as_secs_f64() + 0.001)
                .contains(&unix_seconds(record.completed)),
            "{record:?}"
        );
        assert_eq!(record.status, "ok");
    }
}
