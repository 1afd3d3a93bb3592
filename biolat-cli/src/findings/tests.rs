//! The findings in given windows.

use std::{collections::BTreeMap, time::Duration};

use biolat_model::{
    device::Group,
    snapshot::{DeviceView, Inflight, PoolWaits, SeriesView, Snapshot, TagWaits},
    text::format::NumberFormat,
};
use biolat_testing::samples::{self, histogram, op};

use super::findings;
use crate::window::Window;

/// Reads in these latency buckets, with these mean queue and device latencies.
fn reads(buckets: &[(i32, u64)], queue: f64, device: f64) -> SeriesView {
    let count = buckets.iter().map(|(_, count)| count).sum::<u64>() as f64;
    let with_mean = |mean: f64| histogram(0, buckets, 0, mean * count);
    op("read", 0, with_mean(queue), with_mean(device), with_mean(queue + device))
}

fn drive(name: &str, op: SeriesView) -> DeviceView {
    let mut view = samples::device(name, 9.0, vec![op]);
    view.device.model = "Drive 9".into();
    view
}

fn findings_of(devices: Vec<DeviceView>, lost: &[(&str, u64)]) -> Vec<String> {
    let lost: BTreeMap<_, _> =
        lost.iter().map(|&(reason, count)| (reason.to_owned().into(), count)).collect();
    let after = Snapshot { lost, ..samples::snapshot(60.0, devices) };
    let window = Window::between(&samples::snapshot(0.0, vec![]), &after);
    findings(&window, NumberFormat::UNICODE)
}

/// 977 µs is 2^-10 s, the upper bound of bucket -80.
const QUICK: &[(i32, u64)] = &[(-80, 600)];

fn nothing_found(texts: &[String]) -> bool {
    matches!(texts, [only] if only.starts_with("Nothing stands out"))
}

#[test]
fn nothing_stands_out() {
    let found = findings_of(
        vec![drive("sda", reads(QUICK, 1e-6, 9e-4)), drive("sdb", reads(QUICK, 1e-6, 9e-4))],
        &[],
    );
    assert!(nothing_found(&found), "{found:?}");
    // Expected losses, and a few missed completions on idle CPUs.
    let mut sda = drive("sda", reads(QUICK, 1e-6, 9e-4));
    sda.unseen.insert(Group::Read, 3);
    let found = findings_of(vec![sda], &[("passthrough", 40), ("no_disk", 2), ("clock", 0)]);
    assert!(nothing_found(&found), "{found:?}");
    let found = findings_of(vec![drive("sda", reads(&[(-80, 99)], 1.0, 0.1))], &[]);
    assert_eq!(found, ["No device completed 100 I/Os: too few to draw conclusions."]);
}

/// Sequential I/Os of 200 ms each: only a few fit in a window.
#[test]
fn reports_slow_devices_with_few_ios() {
    let found = findings_of(
        vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 25)], 0.0, 0.2))],
        &[],
    );
    assert_eq!(found, ["sdb: half of its 25 reads took 201 ms or longer (total latency)."]);
    let found = findings_of(
        vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(&[(-18, 9)], 0.0, 0.2))],
        &[],
    );
    assert!(nothing_found(&found), "{found:?}");
}

fn with_inflight(device: DeviceView, read: u64, write: u64, oldest_seconds: f64, exact: bool) -> DeviceView {
    DeviceView {
        inflight: Inflight {
            reads: read,
            writes: write,
            oldest: Duration::from_secs_f64(oldest_seconds),
            is_exact: exact,
        },
        ..device
    }
}

/// The window of `findings_of` is 60 s long.
#[test]
fn reports_hung_devices() {
    let idle = |name| drive(name, reads(&[], 0.0, 0.0));
    let healthy = with_inflight(drive("sda", reads(&[(-80, 10)], 0.0, 0.1)), 3, 0, 0.2, true);
    let found = findings_of(
        vec![
            healthy.clone(),
            with_inflight(idle("sdb"), 0, 12, 90.0, true),
            with_inflight(idle("sdc"), 1, 0, 70.0, false),
            with_inflight(idle("sdd"), 0, 0, 20.0, true),
            with_inflight(idle("sde"), 1, 0, 0.9, true),
        ],
        &[],
    );
    let expected = [
        "sdb: 12 I/Os in flight, none completed in 60 s, the oldest for 90 s.",
        "sdc: 1 I/O in flight, none completed for at least 70 s.",
        "sdd: I/O in the scheduler, none completed in 60 s, the oldest for 20 s.",
    ];
    assert_eq!(found, expected);
    // Without disk statistics, it is unknown whether other I/Os complete.
    let mut unknown = with_inflight(idle("sda"), 2, 0, 16.0, true);
    unknown.phases = [false; 4];
    assert_eq!(findings_of(vec![unknown], &[]), ["sda: 2 I/Os in flight, the oldest for 16 s."]);
    // Comes before other findings.
    let mut failed = drive("sda", reads(&[(-80, 10)], 0.0, 0.1));
    failed.series[0].errors.insert("medium".into(), 2);
    let found = findings_of(vec![failed, with_inflight(idle("sdb"), 1, 0, 90.0, true)], &[]);
    assert!(found[0].starts_with("sdb: 1 I/O in flight"), "{found:?}");
    assert!(findings_of(vec![idle("sda")], &[])[0].starts_with("No device completed"), "{found:?}");
}

#[test]
fn reports_hung_ios_of_working_devices() {
    let found = |latency, oldest, exact| {
        let busy = drive("sda", reads(&[(latency, 2000)], 0.0, 1e-3));
        findings_of(vec![with_inflight(busy, 1, 2, oldest, exact)], &[])
    };
    assert_eq!(
        found(-80, 75.0, true),
        ["sda: 3 I/Os in flight, the oldest for 75 s, while others complete."]
    );
    assert_eq!(
        found(-80, 31.0, true),
        ["sda: 3 I/Os in flight, the oldest for 31 s; others completed in this 60 s window."]
    );
    assert_eq!(found(-80, 31.0, false), ["sda: 3 I/Os in flight, none completed for at least 31 s."]);
    assert!(nothing_found(&found(-80, 0.9, true)));
    // Bucket 17 ends at 4.4 s, so I/Os of that age are normal.
    assert!(!found(17, 4.3, true)[0].contains("in flight") && found(17, 4.5, true)[0].contains("in flight"));
}

#[test]
fn reports_removed_devices() {
    let before = samples::snapshot(
        0.0,
        vec![drive("sda", reads(QUICK, 0.0, 9e-4)), drive("sdb", reads(QUICK, 0.0, 9e-4))],
    );
    let after = samples::snapshot(60.0, vec![drive("sda", reads(&[(-80, 1200)], 0.0, 9e-4))]);
    let found = findings(&Window::between(&before, &after), NumberFormat::UNICODE);
    assert_eq!(found, ["sdb was removed: its I/O is not in this summary."]);
}

#[test]
fn reports_long_admission() {
    let found = |admission: f64, count: u64| {
        let mut read = reads(&[(-80, count)], 0.0, 1e-3);
        read.histograms[0] = histogram(0, &[(-40, count)], 0, admission * count as f64);
        findings_of(vec![drive("sda", read)], &[])
    };
    let expected = "sda: 75 % of the time is spent before a request exists (mean 3.00 ms; total latency after that 1.00 \
                    ms): throttled (writeback, io.cost, io.latency), or all tags in use.";
    assert_eq!(found(3e-3, 600), [expected]);
    assert!(nothing_found(&found(0.9e-3, 600)));
    assert!(found(3e-3, 99)[0].starts_with("No device completed"));
}

/// The window is 60 s long, with 600 reads.
#[test]
fn reports_tag_waits() {
    let waits = |driver, scheduler| {
        let pool = |waits, tags| PoolWaits { waits, tags };
        let tag_waits =
            TagWaits { driver: pool(driver, 64), scheduler: pool(scheduler, 128), reserved: pool(9000, 0) };
        DeviceView { tag_waits: Some(tag_waits), ..drive("sda", reads(QUICK, 1e-6, 9e-4)) }
    };
    assert!(nothing_found(&findings_of(vec![waits(99, 99)], &[])));
    assert_eq!(
        findings_of(vec![waits(72_000, 300)], &[]),
        [
            "sda: tasks slept 1,200 times a second because none of the 64 tags of its driver (for each hardware queue) was free \
             for them. To avoid that, submit fewer I/Os at once, or spread them over more drives.",
            "sda: tasks slept 5 times a second because none of the 128 tags of its scheduler (for each hardware queue) was free \
             for them. To avoid that, raise /sys/block/sda/queue/nr_requests, or submit fewer I/Os at once, or spread them over more \
             drives."
        ]
    );
}

/// The phase depends on the kernel version.
#[test]
fn reports_missing_admission_if_nothing_stands_out() {
    let quiet =
        |name: &str| DeviceView { phases: [false, true, true, true], ..drive(name, reads(QUICK, 0.0, 9e-4)) };
    let wait = "the wait before a request exists (throttling, wait for a tag) is not recorded: Linux";
    let found = findings_of(vec![quiet("sda")], &[]);
    assert!(found[0].contains("No latency includes waits for io.max"), "{found:?}");
    assert!(found[1].starts_with(&format!("sda: {wait} 6.18 and later")), "{found:?}");
    let found = findings_of(["sda", "sdb", "sdc", "sdd"].map(quiet).into(), &[]);
    assert!(found[1].starts_with(&format!("4 devices: {wait} 6.18")), "{found:?}");
}

#[test]
fn reports_long_queueing() {
    let found = findings_of(vec![drive("sda", reads(QUICK, 3e-3, 1e-3))], &[]);
    assert!(found[0].starts_with("sda: 75 % of the total latency is time in the queue"), "{found:?}");
    assert!(found[0].contains("mean 3.00 ms; in the device 1.00 ms"), "{found:?}");
    // The wait is most of the latency, but negligible.
    assert!(nothing_found(&findings_of(vec![drive("sda", reads(QUICK, 3e-5, 1e-5))], &[])));
    assert!(nothing_found(&findings_of(vec![drive("sda", reads(QUICK, 0.9e-3, 1e-3))], &[])));
}

/// The rule and its limits have tests of their own.
#[test]
fn reports_noisy_neighbors() {
    let found = |workloads| {
        let devices = ["sda", "sdb"].map(|name| drive(name, reads(QUICK, 0.0, 9e-4)));
        let after = Snapshot { workloads, ..samples::snapshot(60.0, devices.into()) };
        findings(&Window::between(&samples::snapshot(0.0, vec![]), &after), NumberFormat::UNICODE)
    };
    let on = |device: &str| {
        [("web.service", 900, 5e-3), ("db.service", 3000, 5e-3), ("backup.service", 60_000, 10e-3)]
            .map(|(cgroup, ios, latency)| {
                samples::workload(cgroup, vec![samples::usage(device, "read", ios, 0.0, latency)])
            })
            .to_vec()
    };
    let expected = "sdb: reads and writes of db.service take 5.00 ms (mean total latency), while 97 % of the drive's time goes \
                    to backup.service, 2.4 % to db.service.";
    assert_eq!(found(Some(on("sdb"))), [expected]);
    assert!(nothing_found(&found(Some(on("sdc")))));
    assert!(nothing_found(&found(None)));
}

#[test]
fn reports_devices_slower_than_siblings() {
    let trio = |slow: &[(i32, u64)]| {
        findings_of(
            vec![
                drive("sda", reads(QUICK, 0.0, 9e-4)),
                drive("sdb", reads(slow, 0.0, 9e-4)),
                drive("sdc", reads(QUICK, 0.0, 9e-4)),
            ],
            &[],
        )
    };
    // 14 buckets up: 2^(14/8) times as long.
    let found = trio(&[(-80, 500), (-66, 100)]);
    assert!(
        found[0].starts_with("sdb: its reads are slower than those of 2 other devices of its model"),
        "{found:?}"
    );
    assert!(found[0].contains("p99 3.15 ms, 3 times their median of 935 µs"), "{found:?}");
    assert!(
        found[1].contains("The slowest of 3 devices with 500 I/Os or more is sdb: p99 3.15 ms of 600 I/Os"),
        "{found:?}"
    );
    assert_eq!(found.len(), 2);
    // Twice as long is normal, four I/Os out of 600 do not affect the p99, and 400 I/Os are too few for a p99.
    assert!(trio(&[(-72, 600)])[0].starts_with("Nothing"));
    assert!(trio(&[(-80, 596), (-64, 4)])[0].starts_with("Nothing"));
    assert!(trio(&[(-64, 400)])[0].starts_with("Nothing"));
    // Another model is not a sibling. Without models, devices of the same driver are siblings.
    let other = |model: &str| {
        let mut slow = drive("sdb", reads(&[(-64, 600)], 0.0, 4e-3));
        let mut quick = drive("sda", reads(QUICK, 0.0, 9e-4));
        (slow.device.model, quick.device.model) =
            (model.into(), if model.is_empty() { "" } else { "Drive 9" }.into());
        findings_of(vec![quick, slow], &[])
    };
    assert!(other("Drive 10")[0].starts_with("Nothing"));
    assert!(other("")[0].starts_with("sdb: its reads are slower than those of the other device of its kind"));
}

#[test]
fn reports_bimodal_latencies() {
    let found = findings_of(vec![drive("sda", reads(&[(-110, 700), (-60, 300)], 0.0, 1e-3))], &[]);
    assert!(
        found[0].starts_with("sda: reads have two typical latencies: 70 % near 69.5 µs, 30 % near 5.29 ms"),
        "{found:?}"
    );
}

#[test]
fn reports_errors_and_stalls() {
    let mut read = reads(&[(-80, 10), (24, 1)], 0.0, 1.0);
    read.errors.insert("medium".into(), 2);
    let mut flush = reads(&[(24, 1)], 0.0, 8.0);
    flush.op = "flush".into();
    let mut sda = drive("sda", read);
    sda.series.push(flush);
    let found = findings_of(vec![sda], &[]);
    assert_eq!(found[0], "sda: 2 reads failed (medium).");
    assert_eq!(found[1], "sda: 1 read took longer than 1 s, the longest 7.66 s.");
    assert_eq!(found.len(), 2);
}

#[test]
fn reports_missed_and_lost_completions() {
    let mut sda = drive("sda", reads(QUICK, 0.0, 9e-4));
    sda.unseen.insert(Group::Read, 60);
    let mut sdb = samples::device("sdb", 9.0, vec![reads(QUICK, 0.0, 0.0)]);
    sdb.phases = [false, false, false, true];
    sdb.lacks = "device sdb: queue and device latency may be missing; enable with: echo".into();
    let found = findings_of(vec![sda, sdb], &[("no_room", 1_234), ("passthrough", 1)]);
    assert!(
        found[0].starts_with("sda: the kernel did not run the probe for 60 of 660 I/Os (9.1 %)"),
        "{found:?}"
    );
    assert!(found[1].contains("sdb: queue and device latency may be missing"), "{found:?}");
    assert!(
        found[2].starts_with("1,234 completions are in no histogram (no_room): more series"),
        "{found:?}"
    );
    assert_eq!(found.len(), 3);
}
