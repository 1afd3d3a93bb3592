//! What is said of which window.

use std::collections::BTreeMap;

use super::findings;
use crate::{
    api::{ApiDevice, ApiSnapshot, Op},
    format::NumberFormat,
    report::{
        samples::{self, histogram, op},
        window::Window,
    },
};

/// So many reads of 2^(index/8) s or a bit less, with these means of queue and device latency.
fn reads(buckets: &[(i32, u64)], wait: f64, work: f64) -> Op {
    let count = buckets.iter().map(|(_, count)| count).sum::<u64>() as f64;
    let told = |mean: f64| histogram(0, buckets, 0, mean * count);
    op("read", 0, told(wait), told(work), told(wait + work))
}

fn drive(name: &str, op: Op) -> ApiDevice {
    ApiDevice { model: "Drive 9".into(), ..samples::device(name, 9.0, vec![op]) }
}

fn said(devices: Vec<ApiDevice>, lost: &[(&str, u64)]) -> Vec<String> {
    let lost: BTreeMap<_, _> = lost.iter().map(|&(reason, count)| (reason.to_owned(), count)).collect();
    let after = ApiSnapshot { lost, ..samples::snapshot(60.0, devices) };
    let window = Window::between(&samples::snapshot(0.0, vec![]), &after);
    findings(&window, NumberFormat::UNICODE)
}

/// 977 µs is 2^-10 s, the upper end of bucket -80.
const QUICK: &[(i32, u64)] = &[(-80, 600)];

fn quiet(said: &[String]) -> bool {
    matches!(said, [only] if only.starts_with("Nothing stands out"))
}

#[test]
fn nothing_stands_out() {
    let told =
        said(vec![drive("sda", reads(QUICK, 1e-6, 9e-4)), drive("sdb", reads(QUICK, 1e-6, 9e-4))], &[]);
    assert!(quiet(&told), "{told:?}");
    // Expected losses, and the few misses of idle CPUs.
    let mut sda = drive("sda", reads(QUICK, 1e-6, 9e-4));
    sda.unseen.insert("read".into(), 3);
    let told = said(vec![sda], &[("passthrough", 40), ("no_disk", 2), ("clock", 0)]);
    assert!(quiet(&told), "{told:?}");
    let told = said(vec![drive("sda", reads(&[(-80, 99)], 1.0, 0.1))], &[]);
    assert_eq!(told, ["No device completed 100 I/Os: too few to draw conclusions."]);
}

/// One I/O after another, 200 ms each: in 5 s there are no more of them.
#[test]
fn a_slow_device_completes_few() {
    let told =
        said(vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 25)], 0.0, 0.2))], &[]);
    assert_eq!(told, ["sdb: half of its 25 reads took 201 ms or longer (total latency)."]);
    let told =
        said(vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 9)], 0.0, 0.2))], &[]);
    assert!(quiet(&told), "{told:?}");
}

#[test]
fn a_device_that_hangs() {
    let root = std::env::temp_dir().join(format!("biolat-test-inflight-{}", std::process::id()));
    for (name, counts) in [("sda", "       0        4\n"), ("sdb", "       0        0\n")] {
        let path = root.join("block").join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("inflight"), counts).unwrap();
    }
    let devices = ["sda", "sdb", "sdc"].map(|name| drive(name, reads(&[], 0.0, 0.0)));
    let (before, after) = (samples::snapshot(0.0, vec![]), samples::snapshot(3.0, devices.into()));
    let window = Window::between(&before, &after).with_inflight(&root);
    std::fs::remove_dir_all(&root).unwrap();
    assert_eq!(
        findings(&window, NumberFormat::UNICODE),
        [
            "sda: no I/O completed in 3 s, and 4 are in flight: the device hangs, or they were only just submitted."
        ]
    );
}

#[test]
fn a_removed_device() {
    let before = samples::snapshot(
        0.0,
        vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(QUICK, 0.0, 9e-4))],
    );
    let after = samples::snapshot(60.0, vec![drive("sda", reads(&[(-80, 1200)], 0.0, 9e-4))]);
    let told = findings(&Window::between(&before, &after), NumberFormat::UNICODE);
    assert_eq!(told, ["sdb was removed: its I/O is not in this summary."]);
}

#[test]
fn the_queue_dominates() {
    let told = said(vec![drive("sda", reads(QUICK, 3e-3, 1e-3))], &[]);
    assert!(told[0].starts_with("sda: 75 % of the total latency is time in the queue"), "{told:?}");
    assert!(told[0].contains("mean 3.00 ms; in the device 1.00 ms"), "{told:?}");
    // Half of next to nothing.
    assert!(quiet(&said(vec![drive("sda", reads(QUICK, 3e-5, 1e-5))], &[])));
    assert!(quiet(&said(vec![drive("sda", reads(QUICK, 0.9e-3, 1e-3))], &[])));
}

#[test]
fn one_is_slower_than_its_siblings() {
    let trio = |slow: &[(i32, u64)]| {
        said(
            vec![
                drive("sda", reads(QUICK, 0.0, 9e-4)),
                drive("sdb", reads(slow, 0.0, 9e-4)),
                drive("sdc", reads(QUICK, 0.0, 9e-4)),
            ],
            &[],
        )
    };
    // 14 buckets up: 2^(14/8) times as long.
    let told = trio(&[(-80, 500), (-66, 100)]);
    assert!(
        told[0].starts_with("sdb: its reads are slower than those of 2 other devices of its model"),
        "{told:?}"
    );
    assert!(told[0].contains("p99 3.15 ms, 3 times their median of 935 µs"), "{told:?}");
    assert!(
        told[1].contains("The slowest of 3 devices with 500 I/Os or more is sdb: p99 3.15 ms of 600 I/Os"),
        "{told:?}"
    );
    assert_eq!(told.len(), 2);
    // Twice as long is the way of drives; four I/Os of 600 are no percentile; 400 I/Os have none.
    assert!(trio(&[(-72, 600)])[0].starts_with("Nothing"));
    assert!(trio(&[(-80, 596), (-64, 4)])[0].starts_with("Nothing"));
    assert!(trio(&[(-64, 400)])[0].starts_with("Nothing"));
    // Another model is no sibling; without any, the driver tells.
    let other = |model: &str| {
        let mut slow = drive("sdb", reads(&[(-64, 600)], 0.0, 4e-3));
        let mut quick = drive("sda", reads(QUICK, 0.0, 9e-4));
        (slow.model, quick.model) = (model.into(), if model.is_empty() { "" } else { "Drive 9" }.into());
        said(vec![quick, slow], &[])
    };
    assert!(other("Drive 10")[0].starts_with("Nothing"));
    assert!(other("")[0].starts_with("sdb: its reads are slower than those of the other device of its kind"));
}

#[test]
fn two_kinds_of_latency() {
    let told = said(vec![drive("sda", reads(&[(-110, 700), (-60, 300)], 0.0, 1e-3))], &[]);
    assert!(
        told[0].starts_with("sda: reads have two typical latencies: 70 % near 69.5 µs, 30 % near 5.29 ms"),
        "{told:?}"
    );
}

#[test]
fn errors_and_stalls() {
    let mut read = reads(&[(-80, 10), (24, 1)], 0.0, 1.0);
    read.errors.insert("medium".into(), 2);
    let mut flush = reads(&[(24, 1)], 0.0, 8.0);
    flush.op = "flush".into();
    let mut sda = drive("sda", read);
    sda.ops.push(flush);
    let told = said(vec![sda], &[]);
    assert_eq!(told[0], "sda: 2 reads failed (medium).");
    assert_eq!(told[1], "sda: 1 read took longer than 1 s, the longest 7.66 s.");
    assert_eq!(told.len(), 2);
}

#[test]
fn what_is_missing() {
    let mut sda = drive("sda", reads(QUICK, 0.0, 9e-4));
    sda.unseen.insert("read".into(), 60);
    let mut sdb = samples::device("sdb", 9.0, vec![reads(QUICK, 0.0, 0.0)]);
    sdb.phases = vec!["total".into()];
    sdb.lacks = "device sdb: queue and device latency may be missing; enable with: echo".into();
    let told = said(vec![sda, sdb], &[("no_room", 1_234), ("passthrough", 1)]);
    assert!(
        told[0].starts_with("sda: the kernel did not run the probe for 60 of 660 I/Os (9.1 %)"),
        "{told:?}"
    );
    assert!(told[1].contains("sdb: queue and device latency may be missing"), "{told:?}");
    assert!(told[2].starts_with("1,234 completions are in no histogram (no_room): more series"), "{told:?}");
    assert_eq!(told.len(), 3);
}
