//! A simulated day: drives with heavy-tailed latencies. Every sum is exact, and the memory is what is promised.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};
use rand_distr::{Distribution as _, Poisson};

use super::{
    host::{TestHost, at, clock, difference, series, sums},
    store_of,
};
use crate::{histogram::Histogram, history::Store, snapshot::Snapshot};

/// A lognormal latency: its share, median in seconds, sigma.
type Mode = (f64, f64, f64);

/// Mostly 90 µs, some a garbage collection, few of milliseconds.
const READS: &[Mode] = &[(0.97, 90e-6, 0.45), (0.0295, 400e-6, 0.8), (0.0005, 6e-3, 0.9)];
const WRITES: &[Mode] = &[(0.98, 25e-6, 0.35), (0.0195, 300e-6, 0.9), (0.0005, 10e-3, 0.8)];
const QUEUE: &[Mode] = &[(0.85, 0.4e-6, 0.3), (0.15, 2.5e-6, 0.9)];

/// The share of a normal distribution below so many standard deviations, within 10^-7 (Abramowitz and Stegun, 26.2.17).
fn normal_below(deviations: f64) -> f64 {
    const POLYNOMIAL: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * deviations.abs());
    let sum = POLYNOMIAL.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let above = (-deviations * deviations / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum;
    if deviations < 0.0 { above } else { 1.0 - above }
}

/// The expected share of each bucket, of those with at least one in 10^7.
struct Shape(Vec<(i32, f64)>);

impl Shape {
    fn of(modes: &[Mode]) -> Self {
        let below =
            |bound: f64, &(share, median, sigma): &Mode| share * normal_below((bound / median).ln() / sigma);
        let below = |bound: f64| modes.iter().map(|mode| below(bound, mode)).sum::<f64>();
        let bound = |index: i32| (f64::from(index) / 8.0).exp2();
        let share = |index: i32| {
            let lower = if index == -160 { 0.0 } else { below(bound(index - 1)) };
            below(bound(index)) - lower
        };
        Self((-160..=80).map(|index| (index, share(index))).filter(|(_, share)| *share > 1e-7).collect())
    }

    fn sample(&self, ios: f64, random: &mut SmallRng) -> Histogram {
        let mut came = Histogram::new();
        for &(index, share) in &self.0 {
            let count = Poisson::new(ios * share).unwrap().sample(random) as u64;
            let ns = ((f64::from(index) / 8.0).exp2() * 0.95e9) as u128;
            came.sum_ns += ns * u128::from(count) + u128::from(random.random_range(0..1000_u32));
            match index {
                -160 => came.zero += count,
                _ if count > 0 => came.buckets.push((index, count)),
                _ => {}
            }
        }
        came
    }
}

/// What came in one interval: bytes, and the histograms of all phases.
type Came = (u64, [Histogram; 4]);

/// Different intervals of this length, each with between half and one and a half of these I/Os a second. An I/O that waits
/// in the queue may be in the next bucket of the total.
fn intervals(modes: &[Mode], rate: f64, seconds: f64, random: &mut SmallRng) -> Vec<Came> {
    let (shape, queue) = (Shape::of(modes), Shape::of(QUEUE));
    let interval = |_| {
        let ios = rate * seconds * random.random_range(0.5..1.5);
        let (queue, device) = (queue.sample(ios, random), shape.sample(ios, random));
        let mut total = Histogram { sum_ns: queue.sum_ns + device.sum_ns, ..Histogram::new() };
        total.zero = device.zero;
        for &(index, count) in &device.buckets {
            let width = (f64::from(index) / 8.0).exp2() * 0.083;
            let delayed = (0.85 * 0.4e-6 / width).min(0.85) + 0.15 * (2.5e-6 / width).min(1.0);
            let moved = Poisson::new(count as f64 * delayed).map_or(0, |moved| moved.sample(random) as u64);
            let moved = moved.min(count);
            let parts = [(index, count - moved), (index + 1, moved)];
            total.add(&Histogram {
                buckets: parts.into_iter().filter(|(_, count)| *count > 0).collect(),
                ..Histogram::new()
            });
        }
        let admission = Histogram { zero: total.count(), ..Histogram::new() };
        (total.count() * 16_384 + 512 * u64::from(random.random::<u16>()), [admission, queue, device, total])
    };
    (0..40).map(interval).collect()
}

struct Day {
    host: TestHost,
    random: SmallRng,
    drives: usize,
    /// The snapshots at some times, in seconds after midnight.
    ends: BTreeMap<u64, Arc<Snapshot>>,
    /// Collections, and how long all of them took to record.
    collections: u32,
    took: Duration,
}

impl Day {
    fn new(drives: usize) -> Self {
        let names: Vec<_> = (0..drives).map(|number| format!("nvme{number:02}n1")).collect();
        Self {
            host: TestHost::new(&names.iter().map(String::as_str).collect::<Vec<_>>()),
            random: SmallRng::seed_from_u64(19),
            drives,
            ends: BTreeMap::new(),
            collections: 0,
            took: Duration::ZERO,
        }
    }

    fn pass(&mut self, seconds: f64, came: &[(&str, Vec<Came>)]) {
        self.host.wait(seconds);
        for view in &mut self.host.snapshot.devices {
            view.phases = [true; 4];
            for (op, came) in came {
                let (bytes, histograms) = &came[self.random.random_range(0..came.len())];
                let series = series(view, op);
                series.bytes += bytes;
                for (sum, came) in series.histograms.iter_mut().zip(histograms) {
                    sum.add(came);
                }
            }
            view.inflight.reads = self.random.random_range(0..32);
            view.inflight.oldest = Duration::from_micros(self.random.random_range(0..900));
        }
        if self.random.random_range(0..10) == 0 {
            self.host.slow("nvme00n1", 1.5);
        }
    }

    /// Until so many seconds after midnight, a collection every `interval`, with about 3,000 reads and 2,000 writes a second of
    /// each drive.
    fn run(&mut self, store: &mut Store, until: u64, interval: u64) {
        let midnight = clock(0.0);
        let came = [("read", READS, 3000.0), ("write", WRITES, 2000.0)]
            .map(|(op, modes, rate)| (op, intervals(modes, rate, interval as f64, &mut self.random)));
        let now = |day: &Self| day.host.snapshot.taken.duration_since(midnight).unwrap().as_secs();
        while now(self) < until {
            self.pass(interval as f64, &came);
            let snapshot = self.host.snapshot();
            let began = Instant::now();
            store.record(&snapshot, self.host.boot);
            self.took += began.elapsed();
            self.collections += 1;
            let now = now(self);
            if now.is_multiple_of(3600) || now + 1200 > 26 * 3600 {
                self.ends.insert(now, snapshot);
            }
        }
    }

    /// What is kept of 26 hours does not depend on how often the hours before the last two were collected: it is minutes.
    fn whole(&mut self, store: &mut Store, interval: u64) {
        self.run(store, 24 * 3600, 60);
        self.run(store, 25 * 3600 + 50 * 60, 10);
        self.run(store, 26 * 3600, interval);
    }
}

#[test]
fn every_sum_is_exact_and_the_memory_is_bounded() {
    let (mut day, mut store) = (Day::new(8), store_of(16 << 20));
    day.whole(&mut store, 5);
    let bytes = store.bytes();
    println!("8 drives, 26 h at 5 s: {bytes} bytes, {} a drive", bytes / day.drives);
    println!("recorded in {:?} each", day.took / day.collections);
    assert!(bytes <= 8 << 20, "{bytes} bytes");
    let kept = store.kept_from().unwrap();
    assert_eq!(kept.all, clock(0.0));
    assert_eq!(kept.ten_seconds, clock(24.0 * 3600.0));
    assert_eq!(kept.collections, clock(25.0 * 3600.0 + 50.0 * 60.0));
    // Within each tier, and across both boundaries.
    let hours = |hours: f64| (hours * 3600.0) as u64;
    for (from, to) in [
        (hours(1.0), hours(2.0)),
        (hours(1.0), hours(26.0)),
        (hours(23.0), hours(25.0)),
        (hours(25.0), hours(26.0)),
        (hours(26.0) - 900, hours(26.0) - 300),
        (hours(26.0) - 65, hours(26.0) - 15),
        (hours(26.0) - 5, hours(26.0)),
    ] {
        let expected = difference(&day.ends[&from], &day.ends[&to]);
        assert_eq!(expected.len(), 16);
        let (began, ended) = (clock(from as f64), clock(to as f64));
        for step in [None, Some(Duration::from_secs(777)), Some(super::DAY)] {
            let periods: Vec<_> = store.select(began, ended).into_periods(step).collect();
            assert_eq!((periods[0].began, periods[periods.len() - 1].ended), (began, ended));
            assert_eq!(sums(periods.into_iter()), expected, "{from} to {to} s by {step:?}");
        }
    }
}

/// An interval takes what it takes, whatever comes before and after it: so two hours of minutes tell of 24.
#[test]
fn memory_of_21_drives() {
    let (mut day, mut store) = (Day::new(21), store_of(24 << 20));
    day.run(&mut store, 2 * 3600, 60);
    let two_hours_of_minutes = store.bytes();
    day.run(&mut store, 3 * 3600 + 50 * 60, 10);
    day.run(&mut store, 4 * 3600, 5);
    let bytes = store.bytes() + 11 * two_hours_of_minutes;
    println!("21 drives, 26 h at 5 s: {bytes} bytes, {} a drive", bytes / day.drives);
    assert!(bytes <= 24 << 20, "{bytes} bytes");
}

#[test]
fn an_idle_host_takes_little() {
    let (mut host, mut store) = (TestHost::new(&["sda", "sdb"]), store_of(16 << 20));
    while host.snapshot.taken < clock(30.0 * 3600.0) {
        host.wait(5.0).collect(&mut store);
    }
    println!("no I/O: {} bytes", store.bytes());
    assert!(store.bytes() < 300_000, "{} bytes", store.bytes());
    // What is too old is not kept.
    let first = store.select(at(0.0), at(4e9)).into_periods(None).next().unwrap();
    assert!(first.ended >= clock(4.0 * 3600.0) && first.began <= clock(4.0 * 3600.0));
}
