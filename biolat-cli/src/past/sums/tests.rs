//! A host made at random: whatever range and step a store is asked for, the intervals that it keeps give the same.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use biolat_common::size::{BAND_CELLS, BAND_NAMES, BANDS};
use biolat_history::{HistoryLimits, Store};
use biolat_model::{
    api::ApiInterval,
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::{Device, Group},
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{
        CpuSpread, DeviceView, Health, Inflight, SeriesView, SizesView, SlowIo, SlowLog, Snapshot,
        WorkloadUsage, WorkloadView,
    },
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{PastRange, Steps};

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
        unseen: vec![(Group::ALL[0], 0)],
        inflight: Inflight::default(),
        spread: CpuSpread::default(),
    }
}

const WORKLOADS: [&str; 2] = ["/b", "/a"];

fn workload(cgroup: &str, since: SystemTime) -> WorkloadView {
    let identity = Identity::of_path(cgroup);
    WorkloadView { cgroup: cgroup.into(), identity, since, is_gone: false, usage: Vec::new() }
}

/// Three hours of collections of a store: devices that come and go, I/Os, errors, losses, a clock that is set.
fn random_host(random: &mut SmallRng) -> Store {
    let mut store = Store::new(HistoryLimits { age: Duration::MAX, bytes: 16 << 20 }, UPTIME);
    let midnight = at(MIDNIGHT as f64);
    let mut snapshot = Snapshot {
        taken: midnight,
        started: midnight,
        devices: vec![device("sdb", midnight), device("sda", midnight)],
        workloads: Some(WORKLOADS.map(|cgroup| workload(cgroup, midnight)).into()),
        lost: vec![("clock", 0), ("recursion", 0)],
        slow: SlowLog::default(),
        health: Health::default(),
        probe: None,
        process: None,
        online_cpus: None,
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
            view.unseen[0].1 += random.random_range(0..2);
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
                    let had = series.errors.first().map_or(0, |(_, count)| *count);
                    series.errors = vec![("medium", had + 1)];
                }
            }
        }
        snapshot.lost[random.random_range(0..2)].1 += random.random_range(0..2);
        let mut ios = snapshot.slow.ios.to_vec();
        for _ in 0..random.random_range(0..3) {
            ios.push(slow_io(ios.last().map_or(1, |io| io.number + 1), snapshot.taken, random));
        }
        ios.drain(..ios.len().saturating_sub(20));
        snapshot.slow = SlowLog { ios: ios.into(), dropped: snapshot.slow.dropped + 1 };
        snapshot.health.durations.zero += 1;
        store.record(&Arc::new(snapshot.clone()), boot);
    }
    store
}

fn count_sizes(series: &mut SeriesView, random: &mut SmallRng) {
    let sizes = series.sizes.get_or_insert_with(|| SizesView {
        requests: SizeHistogram::default(),
        bands: BAND_NAMES.map(|name| (name, BandHistogram::default())).into(),
    });
    let (count, band) = (random.random_range(0..3), random.random_range(0..BANDS));
    let buckets = if count > 0 { vec![(9 + 2 * band as i32, count)] } else { Vec::new() };
    sizes.requests.add(&SizeHistogram { buckets, ..SizeHistogram::default() });
    sizes.bands[band].1.add(&latencies(count, random));
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
        status: "ok",
        latencies: [None, latency(), latency(), Some(Duration::from_secs(1))],
        cpu: 3,
        cgroup: "/a".into(),
    }
}

/// As a file or an answer has it, in the order in which it is shown.
fn read(interval: &ApiInterval) -> ApiInterval {
    let mut read: ApiInterval = serde_json::from_slice(&serde_json::to_vec(interval).unwrap()).unwrap();
    read.devices.sort_by(|one, other| one.name.cmp(&other.name).then(one.since.total_cmp(&other.since)));
    read.devices.iter_mut().for_each(|device| device.ops.sort_by(|one, other| one.op.cmp(&other.op)));
    for workload in read.workloads.iter_mut().flatten() {
        workload.usage.sort_by(|one, other| one.device.cmp(&other.device).then(one.op.cmp(&other.op)));
        for usage in &mut workload.usage {
            // Sums of seconds are not exact.
            for seconds in [&mut usage.queue_seconds, &mut usage.device_seconds] {
                *seconds = (*seconds * 1e9).round() / 1e9;
            }
        }
    }
    read
}

#[test]
fn a_file_gives_what_the_store_gives() {
    let mut random = SmallRng::seed_from_u64(7);
    let store = random_host(&mut random);
    let everything = store.select(UNIX_EPOCH, at(4e9)).into_periods(None);
    let kept: Vec<_> = everything.map(|period| read(&ApiInterval::of(&period, false))).collect();
    assert!(kept.len() > 300 && kept.len() < 1000, "{} intervals", kept.len());
    let mut found = [0; 2];
    for _ in 0..60 {
        let length = [30, 600, 20_000][random.random_range(0..3)];
        let from = MIDNIGHT + random.random_range(0..11_000);
        let (from, to) = (from, from + random.random_range(1..length));
        let step = Duration::from_secs([1, 10, 60, 777, 100_000][random.random_range(0..5)]);
        let selection = store.select(at(from as f64), at(to as f64));
        let expected: Vec<_> =
            selection.into_periods(Some(step)).map(|period| read(&ApiInterval::of(&period, false))).collect();
        let range = PastRange { from: at(from as f64), to: at(to as f64), is_default: false };
        let mut steps = Steps::new(range, step);
        let mut sums = Vec::new();
        for interval in &kept {
            sums.extend(steps.add(interval.clone()));
        }
        sums.extend(steps.end());
        let sums: Vec<_> = sums.iter().map(read).collect();
        for (sum, expected) in sums.iter().zip(&expected) {
            assert_eq!(sum, expected, "{from} to {to} in steps of {step:?}");
        }
        assert_eq!(sums.len(), expected.len(), "{from} to {to} in steps of {step:?}");
        found[usize::from(expected.len() > 1)] += 1;
    }
    assert!(found.iter().all(|&count| count > 5), "{found:?} with one interval, with several");
}
