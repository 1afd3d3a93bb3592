//! Storage cost of a drive: its series in a real Prometheus, and the bytes of a scrape.

use std::{
    ffi::OsStr,
    time::{Duration, SystemTime},
};

use biolat_common::bucket::native_index;
use biolat_daemon::{
    expose::{Format, HistogramFormat, HistogramKinds, ServerState, encode},
    http::{Limits, ServeConfig},
};
use biolat_model::{
    device::Group,
    histogram::Histogram,
    snapshot::{CpuSpread, Inflight, SeriesView, Snapshot},
};

use crate::support::{
    scraping::{ScrapingPrometheus, new_program},
    server::Server,
    snapshots::snapshot,
};

/// Latencies of a drive under varied load: six octaves, with a peak.
fn latencies(seed: u64) -> Histogram {
    let count = |n: u64| seed * 977 + n * (48 - n) * 31 + 1;
    let buckets = (0..48).map(|n| (native_index(8 + 60 + n as usize), count(n))).collect();
    Histogram { zero: seed, buckets, overflow: 0, sum_ns: 123_456_789_012 }
}

/// Drives with reads and writes on a host where every figure is available: every phase, the audit, I/O in flight, and completions
/// by CPU. Nothing is slow or fails.
fn drives(number: usize) -> Snapshot {
    let mut snapshot = snapshot(number);
    for (seed, view) in (1_u64..).zip(&mut snapshot.devices) {
        let series = |op: &str, seed: u64| SeriesView {
            op: op.to_owned(),
            bytes: 123_456_789 * seed,
            histograms: [0, 1, 2, 3].map(|phase| latencies(seed + phase)),
            ..SeriesView::default()
        };
        view.device.model = "A Model of a Drive 7.68TB".to_owned();
        view.device.serial = format!("S64HNE0R{seed:06}");
        view.device.wwid = format!("eui.{seed:032x}");
        view.series = vec![series("read", seed), series("write", seed + 9)];
        view.unseen = Group::ALL.map(|group| (group, 0)).into();
        view.inflight = Inflight { is_exact: true, ..Inflight::default() };
        view.spread = CpuSpread {
            completions: vec![1, 1],
            effective_cpus: Some(2.0),
            largest_share: Some(0.5),
            off_node_share: Some(0.0),
        };
    }
    snapshot
}

/// Adds read errors with two statuses, and a write that the probe missed.
fn with_faults(mut snapshot: Snapshot) -> Snapshot {
    for view in &mut snapshot.devices {
        view.series[0].errors = [("medium".into(), 500), ("timeout".into(), 3)].into();
        view.unseen = Group::ALL.map(|group| (group, u64::from(group == Group::Write))).into();
    }
    snapshot
}

/// In protobuf, both kinds would be the default if they took at most 1.5 times the bytes of native histograms alone.
#[test]
fn both_kinds_are_too_large_as_default() {
    let bytes = |number, kinds| {
        let histograms = HistogramFormat { kinds, ..HistogramFormat::default() };
        encode(&drives(number), ServerState::default(), histograms, Format::Protobuf).len() as f64
    };
    let ratio = |number, kinds| bytes(number, kinds) / bytes(number, HistogramKinds::Native);
    for number in [1, 12, 84] {
        println!("{number}: {:.2}", ratio(number, HistogramKinds::Both));
    }
    let [default, both] =
        [HistogramFormat::default().kinds, HistogramKinds::Both].map(|kinds| ratio(84, kinds));
    assert!(default <= 1.5 && both > 1.5, "{default}, {both} with both kinds");
}

const NATIVE: &str = "  scrape_native_histograms: true\n";
const NATIVE_FLAG: &str = "--enable-feature=native-histograms";

#[tokio::test]
#[ignore = "needs prometheus: cargo xtask test"]
async fn series_per_drive() {
    const OF_DRIVE: &str = "count({__name__=~\".+\", device=\"nvme0n1\"})";
    const OF_NODE: &str = "count({__name__=~\"(biolat|process)_.+\", device=\"\"})";
    let server = Server::start_with(ServeConfig::default(), Some(drives(1)), Limits::default()).await;
    let start = |name: &str, program: &OsStr, options: &str, flags: &[&str]| {
        ScrapingPrometheus::start(&format!("series-{name}"), program, server.address, options, flags)
    };
    let native = [
        start("native", &new_program(), NATIVE, &[]),
        start("native-by-flag", "prometheus".as_ref(), "", &[NATIVE_FLAG]),
    ];
    let classic =
        [start("classic", &new_program(), "", &[]), start("classic-old", "prometheus".as_ref(), "", &[])];
    // docs/queries.md gives the same numbers. The targets per drive are 20 and 130.
    let native = native.iter().map(|prometheus| (prometheus, 20.0, 16.0));
    let classic = classic.iter().map(|prometheus| (prometheus, 124.0, 29.0));
    for (prometheus, of_drive, of_node) in native.chain(classic) {
        prometheus.expect(OF_DRIVE, of_drive).await;
        prometheus.expect(OF_NODE, of_node).await;
    }
}

/// Counters used by alerts exist from the start, so Prometheus needs no feature flag to see their first increase. A detailed
/// counter appears with its first count; with the flag, Prometheus derives that increase from the start timestamp, if it is less
/// than an hour old.
#[tokio::test]
#[ignore = "needs prometheus: cargo xtask test"]
async fn keeps_first_increase() {
    let mut before = drives(2);
    for (view, seconds) in before.devices.iter_mut().zip([10, 2 * 3600]) {
        view.since = SystemTime::now() - Duration::from_secs(seconds);
    }
    let server = Server::start(Some(before.clone()), Limits::default()).await;
    let start = |name: &str, program: &OsStr, options: &str, flags: &[&str]| {
        ScrapingPrometheus::start(&format!("increase-{name}"), program, server.address, options, flags)
    };
    let old = start("old", "prometheus".as_ref(), "", &[]);
    let new = start("new", &new_program(), NATIVE, &["--enable-feature=created-timestamp-zero-ingestion"]);
    for prometheus in [&old, &new] {
        for metric in [
            "failed_ios_total",
            "unseen_ios_total",
            "slow_ios_total{over=\"8\"}",
            "slow_ios_total{over=\"1\"}",
        ] {
            prometheus.expect(&format!("count(biolat_{metric} == 0)"), 2.0).await;
        }
        assert_eq!(
            prometheus.query("count({__name__=~\"biolat_(io_errors|unseen_completions)_total\"})").await,
            None
        );
    }
    server.snapshots.send_replace(Some(with_faults(before).into()));
    let increase = |metric: &str| format!("count(increase({metric}[1m]) > 0)");
    for prometheus in [&old, &new] {
        prometheus.expect("sum(biolat_io_errors_total)", 2.0 * 503.0).await;
        for metric in ["biolat_failed_ios_total", "biolat_unseen_ios_total"] {
            prometheus.expect(&increase(metric), 2.0).await;
        }
    }
    let details = increase("biolat_io_errors_total{status=\"medium\"}");
    new.expect(&details, 1.0).await;
    assert_eq!(old.query(&details).await, None);
}

/// A histogram with more buckets than a storage backend allows continues at a coarser schema, which is not a reset.
#[tokio::test]
#[ignore = "needs prometheus: cargo xtask test"]
async fn coarser_schema_is_no_reset() {
    let mut snapshot = drives(1);
    let server = Server::start(Some(snapshot.clone()), Limits::default()).await;
    let start = |name: &str, program: &OsStr, options: &str, flags: &[&str]| {
        ScrapingPrometheus::start(&format!("schema-{name}"), program, server.address, options, flags)
    };
    let prometheus =
        [start("old", "prometheus".as_ref(), "", &[NATIVE_FLAG]), start("new", &new_program(), NATIVE, &[])];
    let reads = "biolat_total_latency_seconds{op=\"read\"}";
    let before = snapshot.devices[0].series[0].histograms[3].clone();
    for prometheus in &prometheus {
        prometheus.expect(&format!("histogram_count({reads})"), before.count() as f64).await;
    }
    let every = Histogram::from_cells([0; 8].into_iter().chain([1; 240]), 0);
    snapshot.devices[0].series[0].histograms[3].add(&every);
    server.snapshots.send_replace(Some(snapshot.into()));
    for prometheus in &prometheus {
        prometheus.expect(&format!("histogram_count({reads})"), (before.count() + 240) as f64).await;
        // Without a reset, 240 is extrapolated to the minute; a reset would add the earlier count.
        let grown = prometheus.query(&format!("histogram_count(increase({reads}[1m]))")).await.unwrap();
        assert!((240.0..before.count() as f64).contains(&grown), "{grown}");
    }
}
