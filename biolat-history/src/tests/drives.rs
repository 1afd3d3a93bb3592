//! Busy drives: intervals of I/Os with heavy-tailed latencies, in several sizes and workloads.

use std::collections::BTreeMap;

use biolat_common::size::{BAND_NAMES, CELLS, cells_of_band};
use biolat_model::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SizesView, WorkloadUsage, WorkloadView},
};
use rand::{RngExt as _, rngs::SmallRng};
use rand_distr::{Binomial, Distribution as _, Poisson};

use super::host::{TestHost, series};

/// A lognormal latency: share, median in seconds, sigma.
type Mode = (f64, f64, f64);

/// Mostly 90 µs, some delayed by garbage collection, a few of several milliseconds.
const READS: &[Mode] = &[(0.97, 90e-6, 0.45), (0.0295, 400e-6, 0.8), (0.0005, 6e-3, 0.9)];
const WRITES: &[Mode] = &[(0.98, 25e-6, 0.35), (0.0195, 300e-6, 0.9), (0.0005, 10e-3, 0.8)];
const QUEUE: &[Mode] = &[(0.85, 0.4e-6, 0.3), (0.15, 2.5e-6, 0.9)];

/// Share of a normal distribution below this many standard deviations, within 10^-7 (Abramowitz and Stegun, 26.2.17).
fn normal_below(deviations: f64) -> f64 {
    const POLYNOMIAL: [f64; 5] =
        [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let t = 1.0 / (1.0 + 0.231_641_9 * deviations.abs());
    let sum = POLYNOMIAL.iter().rev().fold(0.0, |sum, coefficient| (sum + coefficient) * t);
    let above = (-deviations * deviations / 2.0).exp() / std::f64::consts::TAU.sqrt() * sum;
    if deviations < 0.0 { above } else { 1.0 - above }
}

/// Expected share of each bucket, for buckets with at least one latency in 10^7.
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
        let mut added = Histogram::new();
        for &(index, share) in &self.0 {
            let count = Poisson::new(ios * share).unwrap().sample(random) as u64;
            let ns = ((f64::from(index) / 8.0).exp2() * 0.95e9) as u128;
            added.sum_ns += ns * u128::from(count) + u128::from(random.random_range(0..1000_u32));
            match index {
                -160 => added.zero += count,
                _ if count > 0 => added.buckets.push((index, count)),
                _ => {}
            }
        }
        added
    }
}

/// Share of each workload, and of each size band.
const WORKLOADS: [(&str, f64); 3] =
    [("/", 0.15), ("/system.slice/backup.service", 0.05), ("/system.slice/postgresql.service", 0.8)];
const SIZES: [(usize, f64); 3] = [(0, 0.2), (1, 0.75), (2, 0.05)];

/// The I/O of a drive and op in an interval.
struct IntervalIo {
    bytes: u64,
    histograms: [Histogram; 4],
    sizes: SizesView,
    usages: Vec<WorkloadUsage>,
}

/// Intervals of an op to pick from at random.
pub(super) struct OpIntervals {
    op: &'static str,
    intervals: Vec<IntervalIo>,
}

/// Intervals of this length with about 3,000 reads and 2,000 writes a second.
pub(super) fn reads_and_writes(seconds: f64, random: &mut SmallRng) -> [OpIntervals; 2] {
    [("read", READS, 3000.0), ("write", WRITES, 2000.0)]
        .map(|(op, modes, rate)| OpIntervals { op, intervals: intervals(op, modes, rate, seconds, random) })
}

impl OpIntervals {
    /// Adds a random interval to each drive.
    pub(super) fn pass(&self, host: &mut TestHost, random: &mut SmallRng) {
        for view in &mut host.snapshot.devices {
            let IntervalIo { bytes, histograms, sizes, usages } =
                &self.intervals[random.random_range(0..self.intervals.len())];
            let series = series(view, self.op);
            series.bytes += bytes;
            for (sum, added) in series.histograms.iter_mut().zip(histograms) {
                sum.add(added);
            }
            if let Some(sum) = &mut series.sizes {
                add_sizes(sum, sizes);
            }
            for (workload, added) in host.snapshot.workloads.iter_mut().flatten().zip(usages) {
                let device = &view.device.name;
                let is_same = |usage: &WorkloadUsage| usage.device == *device && usage.op == added.op;
                let place = workload.usage.iter().position(is_same).unwrap_or_else(|| {
                    let (device, op) = (device.clone(), added.op.clone());
                    workload.usage.push(WorkloadUsage { device, op, ..WorkloadUsage::default() });
                    workload.usage.len() - 1
                });
                let sum = &mut workload.usage[place];
                sum.bytes += added.bytes;
                sum.queue_ns += added.queue_ns;
                sum.device_ns += added.device_ns;
                sum.latency.add(&added.latency);
            }
        }
    }
}

/// Makes the host count sizes and workloads from now on.
pub(super) fn count_sizes_and_workloads(host: &mut TestHost) {
    for series in host.snapshot.devices.iter_mut().flat_map(|view| &mut view.series) {
        series.sizes = Some(SizesView::default());
    }
    let started = host.snapshot.started;
    let workload = |(cgroup, _): (&str, f64)| WorkloadView::new(cgroup, &Identity::of_path(cgroup), started);
    host.snapshot.workloads = Some(WORKLOADS.map(workload).into());
}

fn add_sizes(sum: &mut SizesView, added: &SizesView) {
    let (mut cells, new) = (sum.requests.cells(), added.requests.cells());
    cells.iter_mut().zip(new).for_each(|(sum, new)| *sum += new);
    sum.requests = SizeHistogram::from_cells(&cells);
    let mut bands: BTreeMap<_, _> =
        sum.bands.drain(..).map(|band| (place(&band.size), band.device)).collect();
    for BandView { size, device } in &added.bands {
        bands.entry(place(size)).or_default().add(device);
    }
    let view = |(place, device): (usize, _)| BandView { size: BAND_NAMES[place].into(), device };
    sum.bands = bands.into_iter().map(view).collect();
}

fn place(band: &str) -> usize {
    BAND_NAMES.iter().position(|name| *name == band).unwrap()
}

/// Divides a histogram randomly in these shares.
fn divided<const N: usize>(whole: &Histogram, shares: [f64; N], random: &mut SmallRng) -> [Histogram; N] {
    let mut left_share = 1.0;
    let mut left = whole.clone();
    shares.map(|share| {
        let ratio = (share / left_share).min(1.0);
        left_share -= share;
        let mut part = |count: u64| {
            if ratio > 0.9999 { count } else { Binomial::new(count, ratio).unwrap().sample(random) }
        };
        let buckets: Vec<_> = left.buckets.iter().map(|&(index, count)| (index, part(count))).collect();
        let taken = Histogram {
            zero: part(left.zero),
            buckets: buckets.into_iter().filter(|(_, count)| *count > 0).collect(),
            overflow: part(left.overflow),
            sum_ns: if ratio > 0.9999 { left.sum_ns } else { (left.sum_ns as f64 * ratio) as u128 },
        };
        left = left.since(&taken);
        taken
    })
}

/// At the resolution of bands and workloads.
fn coarse(histogram: &Histogram) -> BandHistogram {
    Histogram { buckets: histogram.at_schema(1), ..histogram.clone() }.into()
}

/// Makes intervals with a random rate between half and one and a half times `rate`. Queueing can move an I/O to the next bucket
/// of the total.
fn intervals(op: &str, modes: &[Mode], rate: f64, seconds: f64, random: &mut SmallRng) -> Vec<IntervalIo> {
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
        let bytes = total.count() * 16_384 + 512 * u64::from(random.random::<u16>());
        let sizes = sizes(&device, random);
        let usages = usages(op, bytes, [&queue, &device, &total], random);
        IntervalIo { bytes, histograms: [admission, queue, device, total], sizes, usages }
    };
    (0..40).map(interval).collect()
}

fn sizes(device: &Histogram, random: &mut SmallRng) -> SizesView {
    let parts = divided(device, SIZES.map(|(_, share)| share), random);
    let mut requests = [0; CELLS];
    let bands = SIZES.iter().zip(&parts).map(|(&(band, _), part)| {
        // A tenth of the I/Os are one size below the band's largest.
        let largest = cells_of_band(band).end - 1;
        (requests[largest - 1], requests[largest]) = (part.count() / 10, part.count() - part.count() / 10);
        BandView { size: BAND_NAMES[band].into(), device: coarse(part) }
    });
    SizesView { bands: bands.collect(), requests: SizeHistogram::from_cells(&requests) }
}

fn usages(
    op: &str,
    bytes: u64,
    [queue, device, total]: [&Histogram; 3],
    random: &mut SmallRng,
) -> Vec<WorkloadUsage> {
    let shares = WORKLOADS.map(|(_, share)| share);
    let parts = divided(total, shares, random);
    let mut left = (bytes, queue.sum_ns, device.sum_ns);
    let last = parts.len() - 1;
    let usage = |(number, part): (usize, &Histogram)| {
        let share = |whole: u128| {
            if number == last { whole } else { whole * u128::from(part.count()) / u128::from(total.count()) }
        };
        let added = if number == last {
            left
        } else {
            (share(bytes.into()) as u64, share(queue.sum_ns), share(device.sum_ns))
        };
        left = (left.0 - added.0, left.1 - added.1, left.2 - added.2);
        let latency = coarse(&Histogram { sum_ns: added.1 + added.2, ..part.clone() });
        let (bytes, queue_ns, device_ns) = added;
        WorkloadUsage {
            device: String::new(),
            op: op.to_owned(),
            bytes,
            errors: 0,
            queue_ns,
            device_ns,
            latency,
        }
    };
    parts.iter().enumerate().map(usage).collect()
}
