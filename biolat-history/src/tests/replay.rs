//! A random host: a store into which its intervals are replayed answers any range and step like the original.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::size::{BAND_CELLS, BAND_NAMES, BANDS};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::{Device, Group},
    histogram::Histogram,
    io_names::IoNames,
    period::Period,
    size_histogram::SizeHistogram,
    snapshot::{
        BandView, DeviceView, Inflight, SeriesView, SizesView, SlowIo, Snapshot, WorkloadUsage, WorkloadView,
    },
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use crate::{HistoryLimits, Store};

const MIDNIGHT: u64 = 1_767_571_200;
const UPTIME: Duration = Duration::from_secs(86_400);

fn at(seconds: f64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs_f64(seconds)
}

fn device(name: &str, since: SystemTime) -> DeviceView {
    DeviceView {
        device: Device { name: name.into(), model: format!("model of {name}"), ..Device::default() },
        since,
        phases: [false, true, true, true],
        series: ["write", "read"].map(|op| SeriesView { op: op.into(), ..SeriesView::default() }).into(),
        unseen: [(Group::ALL[0], 0)].into(),
        ..DeviceView::default()
    }
}

const WORKLOADS: [&str; 2] = ["/b", "/a"];

fn workload(cgroup: &str, since: SystemTime) -> WorkloadView {
    WorkloadView::new(cgroup, &Identity::of_path(cgroup), since)
}

/// Three hours of collections in a store: devices that come and go, I/Os, errors, losses, a clock that is set.
fn random_host(random: &mut SmallRng) -> Store {
    let mut store = Store::new(HistoryLimits { age: Duration::MAX, bytes: 16 << 20 }, UPTIME);
    let midnight = at(MIDNIGHT as f64);
    let mut snapshot = Snapshot {
        taken: midnight,
        started: midnight,
        devices: vec![device("sdb", midnight), device("sda", midnight)],
        workloads: Some(WORKLOADS.map(|cgroup| workload(cgroup, midnight)).into()),
        ..Snapshot::default()
    };
    let mut boot = UPTIME;
    for collection in 0..1000 {
        let passed = Duration::from_micros(random.random_range(9_000_000..13_000_000));
        (boot, snapshot.taken) = (boot + passed, snapshot.taken + passed);
        if collection == 600 {
            snapshot.taken -= Duration::from_secs(250);
        }
        if random.random_range(0..50) == 0 {
            let name = ["sda", "sdc", "nvme0n1"][random.random_range(0..3)];
            snapshot.devices.retain(|view| view.device.name != name);
            snapshot.devices.insert(0, device(name, snapshot.taken));
        }
        for view in &mut snapshot.devices {
            view.phases[1..3].fill(random.random_range(0..4) > 0);
            view.inflight = Inflight {
                reads: random.random_range(0..3),
                writes: random.random_range(0..2),
                oldest: Duration::from_millis(random.random_range(0..5)),
                is_exact: random.random(),
            };
            *view.unseen.entry(Group::ALL[0]).or_default() += random.random_range(0..2);
            for series in &mut view.series {
                let (count, index) = (random.random_range(0..3), random.random_range(-160..80));
                series.bytes += 512 * count;
                series.requeues += random.random_range(0..2);
                for histogram in &mut series.histograms[1..] {
                    let sum_ns = u128::from(count * random.random_range(0..1_000_000_000));
                    let buckets = if count > 0 && index > -160 { vec![(index, count)] } else { Vec::new() };
                    let zero = if index == -160 { count } else { 0 };
                    histogram.add(&Histogram { zero, buckets, overflow: count / 2, sum_ns });
                }
                count_sizes(series, random);
                let workload = random.random_range(0..WORKLOADS.len());
                count_usage(
                    &mut snapshot.workloads.as_mut().unwrap()[workload],
                    &view.device.name,
                    series,
                    random,
                );
                if random.random_range(0..10) == 0 {
                    *series.errors.entry("medium".into()).or_default() += 1;
                }
            }
        }
        let reason = ["clock", "recursion"][random.random_range(0..2)];
        *snapshot.lost.entry(reason.into()).or_default() += random.random_range(0..2);
        let mut ios = snapshot.slow.to_vec();
        for _ in 0..random.random_range(0..3) {
            ios.push(slow_io(ios.last().map_or(1, |io| io.number + 1), snapshot.taken, random));
        }
        ios.drain(..ios.len().saturating_sub(20));
        snapshot.slow = ios.into();
        snapshot.slow_dropped += 1;
        snapshot.health.durations.zero += 1;
        store.record(&Arc::new(snapshot.clone()), boot);
    }
    store
}

fn count_sizes(series: &mut SeriesView, random: &mut SmallRng) {
    let sizes = series.sizes.get_or_insert_with(|| SizesView {
        requests: SizeHistogram::default(),
        bands: BAND_NAMES.map(|name| BandView { size: name.into(), ..BandView::default() }).into(),
    });
    let (count, band) = (random.random_range(0..3), random.random_range(0..BANDS));
    let buckets = if count > 0 { vec![(9 + 2 * band as i32, count)] } else { Vec::new() };
    sizes.requests.add(&SizeHistogram { buckets, ..SizeHistogram::default() });
    sizes.bands[band].device.add(&latencies(count, random));
}

fn count_usage(workload: &mut WorkloadView, device: &str, series: &SeriesView, random: &mut SmallRng) {
    let is_same = |usage: &&mut WorkloadUsage| usage.device == device && usage.op == series.op;
    if workload.usage.iter_mut().find(is_same).is_none() {
        let (device, op) = (device.to_owned(), series.op.clone());
        workload.usage.push(WorkloadUsage { device, op, ..WorkloadUsage::default() });
    }
    let usage = workload.usage.iter_mut().find(is_same).unwrap();
    let count = random.random_range(0..3);
    usage.bytes += 4096 * count;
    usage.errors += count / 2;
    usage.queue_ns += u128::from(random.random_range(0..1000_u64));
    usage.device_ns += u128::from(random.random_range(0..1_000_000_u64));
    usage.latency.add(&latencies(count, random));
}

fn latencies(count: u64, random: &mut SmallRng) -> BandHistogram {
    let mut cells = [0; BAND_CELLS];
    cells[random.random_range(0..BAND_CELLS)] = count;
    BandHistogram::from_cells(&cells, u128::from(count * random.random_range(0..1_000_000_000)))
}

fn slow_io(number: u64, completed: SystemTime, random: &mut SmallRng) -> SlowIo {
    let mut latency =
        || random.random::<bool>().then(|| Duration::from_nanos(random.random_range(0..9_000_000_000)));
    SlowIo {
        number,
        completed,
        device: "sda".into(),
        op: "read".into(),
        sector: 2048,
        bytes: 4096,
        status: "ok".into(),
        latencies: [None, latency(), latency(), Some(Duration::from_secs(1))],
        cpu: 3,
        workload: Some("/a".into()),
        names: IoNames::default(),
    }
}

/// As read from a file, sorted by name.
fn read(period: &Period) -> Period {
    let mut read: Period = serde_json::from_slice(&serde_json::to_vec(period).unwrap()).unwrap();
    read.devices.sort_by(|one, other| (&one.device.name, one.since).cmp(&(&other.device.name, other.since)));
    read.devices.iter_mut().for_each(|view| view.series.sort_by(|one, other| one.op.cmp(&other.op)));
    for workload in read.workloads.iter_mut().flatten() {
        workload.usage.sort_by(|one, other| (&one.device, &one.op).cmp(&(&other.device, &other.op)));
    }
    read
}

#[test]
fn a_replayed_store_is_equivalent() {
    let mut random = SmallRng::seed_from_u64(7);
    let store = random_host(&mut random);
    let everything = store.select(UNIX_EPOCH, at(4e9)).into_periods(None);
    let kept: Vec<_> = everything.map(|period| read(&period)).collect();
    assert!(kept.len() > 300 && kept.len() < 1000, "{} intervals", kept.len());
    let mut replayed = Store::new(HistoryLimits { age: Duration::MAX, bytes: usize::MAX }, Duration::ZERO);
    kept.iter().for_each(|period| replayed.replay(period.clone()));
    let mut found = [0; 2];
    for _ in 0..60 {
        let length = [30, 600, 20_000][random.random_range(0..3)];
        let from = MIDNIGHT + random.random_range(0..11_000);
        let (from, to) = (from, from + random.random_range(1..length));
        let step = Duration::from_secs([1, 10, 60, 777, 100_000][random.random_range(0..5)]);
        let selection = store.select(at(from as f64), at(to as f64));
        let expected: Vec<_> = selection.into_periods(Some(step)).map(|period| read(&period)).collect();
        let selection = replayed.select(at(from as f64), at(to as f64));
        let sums: Vec<_> = selection.into_periods(Some(step)).map(|period| read(&period)).collect();
        for (sum, expected) in sums.iter().zip(&expected) {
            assert_eq!(sum, expected, "{from} to {to} in steps of {step:?}");
        }
        assert_eq!(sums.len(), expected.len(), "{from} to {to} in steps of {step:?}");
        found[usize::from(expected.len() > 1)] += 1;
    }
    assert!(found.iter().all(|&count| count > 5), "{found:?} with one interval, with several");
}

/// A file can contain anything.
#[test]
fn replays_extreme_counts_and_duplicate_devices() {
    let mut random = SmallRng::seed_from_u64(8);
    let store = random_host(&mut random);
    let mut replayed = Store::new(HistoryLimits { age: Duration::MAX, bytes: usize::MAX }, Duration::ZERO);
    for mut period in store.select(UNIX_EPOCH, at(4e9)).into_periods(None) {
        let series = period.devices.iter_mut().flat_map(|view| &mut view.series);
        for histogram in series.flat_map(|series| &mut series.histograms) {
            histogram.sum_ns = u128::MAX;
            histogram.buckets.iter_mut().for_each(|(_, count)| *count = u64::MAX);
        }
        for usage in period.workloads.iter_mut().flatten().flat_map(|workload| &mut workload.usage) {
            (usage.bytes, usage.errors, usage.queue_ns) = (u64::MAX, u64::MAX, u128::MAX);
        }
        (period.collections, period.length) = (u64::MAX, Duration::MAX);
        period.devices.extend(period.devices.clone());
        replayed.replay(period);
    }
    let sums = replayed.select(UNIX_EPOCH, at(4e9)).into_periods(Some(Duration::from_secs(3600)));
    assert_ne!(sums.flat_map(|sum| sum.devices).count(), 0);
}
