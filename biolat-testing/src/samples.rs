//! Snapshots made by hand, for tests.

use std::collections::BTreeMap;

use biolat_common::{
    bucket::cell,
    series::Phase,
    size::{BAND_CELLS, band_cell},
};
use biolat_model::{
    api::{
        ApiBand, ApiDevice, ApiInterval, ApiSizes, ApiSlowIo, ApiSlowLatency, ApiSlowLog, ApiSnapshot,
        ApiSummary, ApiWorkload, ApiWorkloadUsage, Daemon, Op, VERSION,
    },
    band_histogram::BandHistogram,
    histogram::Histogram,
    size_histogram::SizeHistogram,
};

pub fn histogram(zero: u64, buckets: &[(i32, u64)], overflow: u64, seconds: f64) -> Histogram {
    Histogram { zero, buckets: buckets.to_vec(), overflow, sum_ns: (seconds * 1e9).round() as u128 }
}

pub fn op(name: &str, bytes: u64, queue: Histogram, device: Histogram, total: Histogram) -> Op {
    Op {
        op: name.into(),
        bytes,
        errors: BTreeMap::new(),
        requeues: 0,
        admission: Histogram::new(),
        queue,
        device,
        total,
        sizes: None,
    }
}

pub fn device(name: &str, since: f64, ops: Vec<Op>) -> ApiDevice {
    ApiDevice {
        name: name.into(),
        model: String::new(),
        serial: String::new(),
        firmware: String::new(),
        transport: String::new(),
        scheduler: String::new(),
        rotational: false,
        holders: Vec::new(),
        path: None,
        since,
        phases: Phase::ALL.map(|phase| phase.name().to_owned()).into(),
        lacks: String::new(),
        ops,
        unseen: BTreeMap::new(),
        inflight: None,
        completions: Vec::new(),
    }
}

/// The name of a band, the size histogram's buckets of its requests, and the latency of each in seconds.
pub type BandSample<'a> = (&'a str, &'a [(i32, u64)], f64);

/// Requests by size.
pub fn sizes(bands: &[BandSample<'_>]) -> ApiSizes {
    let mut requests: BTreeMap<i32, u64> = BTreeMap::new();
    let bands = bands.iter().map(|&(size, buckets, latency)| {
        for (index, count) in buckets {
            *requests.entry(*index).or_default() += count;
        }
        let count = buckets.iter().map(|(_, count)| count).sum();
        ApiBand { size: size.to_owned(), device: band(count, latency) }
    });
    let bands = bands.collect();
    let requests = SizeHistogram { zero: 0, buckets: requests.into_iter().collect(), overflow: 0 };
    ApiSizes { requests, bands }
}

/// So many I/Os with this latency in seconds.
fn band(count: u64, latency: f64) -> BandHistogram {
    let ns = (latency * 1e9).round() as u64;
    let mut cells = [0; BAND_CELLS];
    cells[band_cell(cell(ns.min((1 << 40) - 1)))] = count;
    BandHistogram::from_cells(&cells, u128::from(ns) * u128::from(count))
}

/// A cgroup that is named by its path.
pub fn workload(cgroup: &str, usage: Vec<ApiWorkloadUsage>) -> ApiWorkload {
    ApiWorkload { cgroup: cgroup.into(), name: cgroup.into(), since: 9.0, usage, ..ApiWorkload::default() }
}

/// So many requests of 4 KiB, each with this time in the queue and in the device.
pub fn usage(device: &str, op: &str, ios: u64, queue: f64, in_device: f64) -> ApiWorkloadUsage {
    ApiWorkloadUsage {
        device: device.into(),
        op: op.into(),
        bytes: ios * 4096,
        errors: 0,
        queue_seconds: queue * ios as f64,
        device_seconds: in_device * ios as f64,
        total: band(ios, queue + in_device),
    }
}

/// Of a daemon that has finished 20 collections, one every 5 s.
pub fn snapshot(taken: f64, devices: Vec<ApiDevice>) -> ApiSnapshot {
    ApiSnapshot {
        version: VERSION,
        biolat: "0.1.0".into(),
        host: "db1".into(),
        taken,
        started: 1.0,
        interval: 5.0,
        devices,
        workloads: None,
        lost: BTreeMap::from([("clock".to_owned(), 0)]),
        slow_dropped: 0,
        daemon: Daemon {
            collections: 20,
            collection_seconds: 0.1,
            failures: 0,
            overruns: 0,
            slots: 8,
            map_bytes: 1,
            cpu_seconds: 0.1,
            resident_bytes: 1,
            probe: None,
        },
    }
}

/// A read of 1.25 s at 22:13:20.123 UTC.
pub fn slow_io(number: u64, device: &str) -> ApiSlowIo {
    ApiSlowIo {
        number,
        completed: 1_700_000_000.123_9,
        device: device.into(),
        op: "read".into(),
        sector: 2048,
        bytes: 4096,
        status: "ok".into(),
        latency: ApiSlowLatency {
            admission: None,
            queue: Some(0.000_2),
            device: Some(1.249_8),
            total: Some(1.25),
        },
        cpu: 3,
        workload: None,
    }
}

/// Of a daemon that records I/Os from 1 s on, and was started at this time.
pub fn slow_log(ios: Vec<ApiSlowIo>) -> ApiSlowLog {
    ApiSlowLog {
        version: VERSION,
        biolat: "0.1.0".into(),
        host: "db1".into(),
        taken: 100.0,
        started: 1.0,
        interval: 5.0,
        threshold: Some(1.0),
        dropped: 0,
        ios,
    }
}

/// A minute of a hundred I/Os of `sda`.
pub fn minute(began: f64, op: &str, slowest_seconds: f64, errors: u64) -> ApiInterval {
    let (device, op) = ("sda".into(), op.into());
    ApiInterval {
        began,
        taken: began + 60.0,
        seconds: 60.0,
        collections: 12,
        failures: 0,
        devices: vec![],
        workloads: None,
        summary: vec![ApiSummary { device, op, ios: 100, bytes: 4096, errors, slowest_seconds }],
        lost: BTreeMap::default(),
        slow: vec![],
        slow_dropped: 0,
    }
}
