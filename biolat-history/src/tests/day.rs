//! A simulated day of drives with heavy-tailed latencies: every sum is exact, and memory stays within the documented limits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use biolat_model::{
    band_histogram::BandHistogram,
    histogram::Histogram,
    period::{KeptFrom, Period},
    snapshot::{Snapshot, WorkloadUsage},
};
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{
    drives::{OpIntervals, count_sizes_and_workloads, reads_and_writes},
    host::{Sums, TestHost, at, clock, difference, sums},
    store_of,
};
use crate::Store;

struct Day {
    host: TestHost,
    random: SmallRng,
    /// Selected snapshots, by seconds after midnight.
    ends: BTreeMap<u64, Arc<Snapshot>>,
}

impl Day {
    fn new(drives: usize, has_breakdown: bool) -> Self {
        let names: Vec<_> = (0..drives).map(|number| format!("nvme{number:02}n1")).collect();
        let mut host = TestHost::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        if has_breakdown {
            count_sizes_and_workloads(&mut host);
        }
        Self { host, random: SmallRng::seed_from_u64(19), ends: BTreeMap::new() }
    }

    fn pass(&mut self, seconds: f64, ops: &[OpIntervals]) {
        self.host.wait(seconds);
        for op in ops {
            op.pass(&mut self.host, &mut self.random);
        }
        for view in &mut self.host.snapshot.devices {
            view.phases = [true; 4];
            view.inflight.reads = self.random.random_range(0..32);
            view.inflight.oldest = Duration::from_micros(self.random.random_range(0..900));
        }
        if self.random.random_range(0..10) == 0 {
            self.host.slow("nvme00n1", 1.5);
        }
    }

    /// Collects every `interval` until this many seconds after midnight.
    fn run(&mut self, stores: &mut [&mut Store], until: u64, interval: u64) {
        let midnight = clock(0.0);
        let ops = reads_and_writes(interval as f64, &mut self.random);
        if self.ends.is_empty() {
            self.ends.insert(0, self.host.snapshot.clone().into());
        }
        let now = |day: &Self| day.host.snapshot.taken.duration_since(midnight).unwrap().as_secs();
        while now(self) < until {
            self.pass(interval as f64, &ops);
            let snapshot = self.host.snapshot();
            stores.iter_mut().for_each(|store| store.record(&snapshot, self.host.boot));
            let now = now(self);
            if now.is_multiple_of(3600) || now + 1200 > 5 * 3600 && now <= 5 * 3600 {
                self.ends.insert(now, snapshot);
            }
        }
    }

    /// Runs for whole hours. More than two hours before the end, one collection per minute is enough, because intervals become
    /// minutes anyway.
    fn whole(&mut self, stores: &mut [&mut Store], hours: u64) {
        self.run(stores, (hours - 2) * 3600, 60);
        self.run(stores, hours * 3600 - 600, 10);
        self.run(stores, hours * 3600, 5);
    }
}

const MIB: usize = 1 << 20;

#[test]
fn sums_are_exact_and_memory_is_bounded() {
    const HOURS: u64 = 5;
    const SMALL: usize = MIB;
    let (mut day, mut store, mut small) = (Day::new(2, true), store_of(4 * MIB), store_of(SMALL));
    day.whole(&mut [&mut store, &mut small], HOURS);
    let whole = KeptFrom {
        all: clock(0.0),
        ten_seconds: clock(3.0 * 3600.0),
        collections: clock(5.0 * 3600.0 - 600.0),
        breakdown: Some(clock(0.0)),
    };
    assert_eq!(store.kept_from(), Some(whole));
    // Sizes and workloads are dropped before anything else.
    let kept = small.kept_from().unwrap();
    assert!(small.bytes() <= SMALL, "{} bytes", small.bytes());
    assert!(kept.breakdown.is_some_and(|from| from > whole.all && from < whole.collections), "{kept:?}");
    assert_eq!(KeptFrom { breakdown: whole.breakdown, ..kept }, whole);
    // Within each tier, and across both tier boundaries.
    let hours = |hours: f64| (hours * 3600.0) as u64;
    for (from, to) in [
        (hours(1.0), hours(2.0)),
        (hours(0.0), hours(5.0)),
        (hours(2.0), hours(4.0)),
        (hours(4.0), hours(5.0)),
        (hours(5.0) - 900, hours(5.0) - 300),
        (hours(5.0) - 65, hours(5.0) - 15),
        (hours(5.0) - 5, hours(5.0)),
    ] {
        let expected = difference(&day.ends[&from], &day.ends[&to]);
        let all = difference(&day.ends[&0], &day.ends[&to]);
        assert!(expected.len() == 4 && all.values().all(|sum| sum.parts.len() == 6 + 3 + 3));
        let (began, ended) = (clock(from as f64), clock(to as f64));
        for step in [None, Some(Duration::from_secs(777)), Some(super::DAY)] {
            let periods: Vec<_> = store.select(began, ended).into_periods(step).collect();
            assert_eq!((periods[0].began, periods[periods.len() - 1].ended), (began, ended));
            if step.is_some() {
                periods.iter().for_each(assert_parts_add_up);
            }
            assert_eq!(sums(periods.into_iter()), expected, "{from} to {to} s by {step:?}");
        }
        let without_parts = |mut sums: Sums| {
            sums.values_mut().for_each(|sum| sum.parts.clear());
            sums
        };
        let sums = sums(small.select(began, ended).into_periods(None));
        assert_eq!(without_parts(sums), without_parts(expected), "{from} to {to} s of the small one");
    }
}

/// Checks that sizes and workloads add up to their device and op.
fn assert_parts_add_up(period: &Period) {
    let coarse = |histogram: &Histogram| {
        let whole = Histogram { buckets: histogram.at_schema(1), ..histogram.clone() };
        BandHistogram::from(whole)
    };
    for view in &period.devices {
        for series in &view.series {
            let [_, queue, device, total] = &series.histograms;
            let sizes = series.sizes.as_ref().unwrap();
            assert_eq!(sizes.requests.count(), total.count());
            let mut bands = BandHistogram::default();
            sizes.bands.iter().for_each(|band| bands.add(&band.device));
            assert_eq!(bands, coarse(device));
            let mut all = WorkloadUsage {
                device: view.device.name.clone(),
                op: series.op.clone(),
                ..Default::default()
            };
            for usage in period.workloads.iter().flatten().flat_map(|workload| &workload.usage) {
                if (&usage.device, &usage.op) == (&all.device, &all.op) {
                    all.bytes += usage.bytes;
                    all.queue_ns += usage.queue_ns;
                    all.device_ns += usage.device_ns;
                    all.latency.add(&usage.latency);
                }
            }
            assert_eq!((all.bytes, all.queue_ns, all.device_ns), (series.bytes, queue.sum_ns, device.sum_ns));
            assert_eq!(all.latency, coarse(total));
        }
    }
}

/// Without sizes and workloads, which only use the memory that is left. The memory of an interval does not depend on its
/// neighbours, so a sample of each tier gives the memory of a whole day.
#[test]
fn eight_drives_fit_8_mib_and_21_fit_24() {
    for (drives, most) in [(8, 8), (21, 24)] {
        let (mut day, mut store) = (Day::new(drives, false), store_of(most * MIB));
        // The names.
        day.run(&mut [&mut store], 60, 60);
        let mut before = store.bytes();
        let (mut seconds, mut all) = (60, before);
        for (length, interval, times) in [(1800, 60, 48), (600, 10, 11), (600, 5, 1)] {
            seconds += length;
            day.run(&mut [&mut store], seconds, interval);
            all += times * (store.bytes() - before);
            before = store.bytes();
        }
        println!("{drives} drives, 26 h at 5 s: {all} bytes, {} a drive", all / drives);
        assert!(all <= most * MIB, "{all} bytes of {drives} drives");
    }
}

/// The figures in the documentation.
#[test]
#[ignore = "a measurement"]
fn memory_of_many_drives() {
    for (drives, limit) in [(8, 8), (8, 16), (21, 24), (21, 48)] {
        let (mut day, mut store) = (Day::new(drives, true), store_of(limit * MIB));
        day.whole(&mut [&mut store], 26);
        let kept = store.kept_from().unwrap();
        println!("{drives} drives, {limit} MiB: {} bytes, {kept:?}", store.bytes());
        assert!(store.bytes() <= limit * MIB && kept.all == clock(0.0));
    }
}

#[test]
fn an_idle_host_takes_little() {
    let (mut host, mut store) = (TestHost::new(&["sda", "sdb"]), store_of(16 << 20));
    while host.snapshot.taken < clock(30.0 * 3600.0) {
        host.wait(5.0).collect(&mut store);
    }
    println!("no I/O: {} bytes", store.bytes());
    assert!(store.bytes() < 300_000, "{} bytes", store.bytes());
    // Intervals beyond the age limit are dropped.
    let first = store.select(at(0.0), at(4e9)).into_periods(None).next().unwrap();
    assert!(first.ended >= clock(4.0 * 3600.0) && first.began <= clock(4.0 * 3600.0));
}
