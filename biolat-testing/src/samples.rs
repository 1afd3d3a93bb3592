//! Handmade snapshots and their parts.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::{
    bucket::cell,
    series::PHASES,
    size::{BAND_CELLS, band_cell},
};
use biolat_model::{
    api::ApiSlowLog,
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::Device,
    histogram::Histogram,
    io_names::IoNames,
    period::{Period, Summary},
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, DeviceView, Health, SeriesView, SizesView, SlowIo, Snapshot, WorkloadUsage, WorkloadView,
    },
};

/// Returns the time `seconds` after the epoch.
pub fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

pub fn histogram(zero: u64, buckets: &[(i32, u64)], overflow: u64, seconds: f64) -> Histogram {
    Histogram { zero, buckets: buckets.to_vec(), overflow, sum_ns: (seconds * 1e9).round() as u128 }
}

pub fn op(name: &str, bytes: u64, queue: Histogram, device: Histogram, total: Histogram) -> SeriesView {
    let histograms = [Histogram::new(), queue, device, total];
    SeriesView { op: name.into(), bytes, histograms, ..SeriesView::default() }
}

pub fn device(name: &str, since: f64, series: Vec<SeriesView>) -> DeviceView {
    DeviceView {
        device: Device { name: name.into(), ..Device::default() },
        since: at(since),
        phases: [true; PHASES],
        series,
        ..DeviceView::default()
    }
}

/// A band's name, its buckets in the size histogram, and the latency of each request in seconds.
pub type BandSample<'a> = (&'a str, &'a [(i32, u64)], f64);

/// Makes the size histogram and the bands.
pub fn sizes(bands: &[BandSample<'_>]) -> SizesView {
    let mut requests: BTreeMap<i32, u64> = BTreeMap::new();
    let bands = bands.iter().map(|&(size, buckets, latency)| {
        for (index, count) in buckets {
            *requests.entry(*index).or_default() += count;
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        BandView { size: size.to_owned().into(), device: band(count, latency) }
    });
    let bands = bands.collect();
    let requests = SizeHistogram { zero: 0, buckets: requests.into_iter().collect(), overflow: 0 };
    SizesView { requests, bands }
}

/// Makes a histogram of `count` I/Os, each with the given latency in seconds.
fn band(count: u64, latency: f64) -> BandHistogram {
    let ns = (latency * 1e9).round() as u64;
    let mut cells = [0; BAND_CELLS];
    cells[band_cell(cell(ns.min((1 << 40) - 1)))] = count;
    BandHistogram::from_cells(&cells, u128::from(ns) * u128::from(count))
}

/// Makes a workload without an identity, which is named after its cgroup's path.
pub fn workload(cgroup: &str, usage: Vec<WorkloadUsage>) -> WorkloadView {
    WorkloadView { usage, ..WorkloadView::new(cgroup, &Identity::default(), at(9.0)) }
}

/// Makes the usage of `ios` 4 KiB requests, each of which spent `queue` seconds in the queue and `in_device` seconds in the
/// device.
pub fn usage(device: &str, op: &str, ios: u64, queue: f64, in_device: f64) -> WorkloadUsage {
    let ns = |seconds: f64| (seconds * 1e9).round() as u128 * u128::from(ios);
    WorkloadUsage {
        device: device.into(),
        op: op.into(),
        bytes: ios * 4096,
        errors: 0,
        queue_ns: ns(queue),
        device_ns: ns(in_device),
        latency: band(ios, queue + in_device),
    }
}

/// Makes a snapshot of a daemon that has finished 20 collections, one every 5 s.
pub fn snapshot(taken: f64, devices: Vec<DeviceView>) -> Snapshot {
    Snapshot {
        biolat: "0.1.0".into(),
        host: "db1".into(),
        taken: at(taken),
        started: at(1.0),
        interval: Duration::from_secs(5),
        devices,
        lost: BTreeMap::from([("clock".into(), 0)]),
        health: Health { durations: histogram(20, &[], 0, 0.1), slots: 8, map_bytes: 1, ..Health::default() },
        ..Snapshot::default()
    }
}

/// Makes a 1.25 s read that completed at 22:13:20.123 UTC.
pub fn slow_io(number: u64, device: &str) -> SlowIo {
    let microseconds = |microseconds| Some(Duration::from_micros(microseconds));
    SlowIo {
        number,
        completed: at(1_700_000_000.123_9),
        device: device.into(),
        op: "read".into(),
        sector: 2048,
        bytes: 4096,
        status: "ok".into(),
        latencies: [None, microseconds(200), microseconds(1_249_800), microseconds(1_250_000)],
        cpu: 3,
        workload: None,
        names: IoNames::default(),
    }
}

/// Makes the log of a daemon that records I/Os of at least 1 s.
pub fn slow_log(ios: Vec<SlowIo>) -> ApiSlowLog {
    let snapshot = Snapshot { slow: ios.into(), ..snapshot(100.0, Vec::new()) };
    ApiSlowLog::of(&snapshot, Some(Duration::from_secs(1)))
}

/// Makes a minute with a hundred I/Os on `sda`.
pub fn minute(began: f64, op: &str, slowest_seconds: f64, errors: u64) -> Period {
    let (device, op) = ("sda".into(), op.into());
    Period {
        began: at(began),
        ended: at(began + 60.0),
        length: Duration::from_secs(60),
        collections: 12,
        failures: 0,
        devices: vec![],
        workloads: None,
        summary: vec![Summary { device, op, ios: 100, bytes: 4096, errors, slowest_seconds }],
        lost: BTreeMap::default(),
        slow: vec![],
        slow_dropped: 0,
    }
}
