//! Draws the latencies of many I/Os at once, as cells of the daemon's histograms. The distribution has a log-normal body and a
//! Pareto tail.

use std::sync::LazyLock;

use biolat_common::bucket::{FIRST, LIMIT_NS, OVERFLOW, SCHEMA, ZERO_BUCKET_NS, ZERO_EXPONENT, cell};
use rand::RngExt as _;
use rand_distr::{Binomial, Distribution as _, Poisson, StandardNormal};

use super::Random;

/// Above this variance, the normal distribution replaces the binomial and Poisson distributions.
const LARGE: f64 = 30.0;
/// Below this mean, a binomial draw is at most 1.
const RARE: f64 = 0.01;
/// Up to this number, I/Os are drawn one by one.
pub(crate) const FEW: u64 = 100;
/// Up to this number, I/Os are drawn one by one for a sum.
const FEW_IN_SUM: u64 = 20;
/// Number of deviations at which the body is cut off.
const WIDEST: f64 = 5.0;
/// Steps per deviation in the table of the normal distribution.
const STEPS: f64 = 64.0;

/// Distribution of latencies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latency {
    /// Median of the body in seconds.
    pub(crate) median: f64,
    /// Standard deviation of the body, in octaves.
    pub(crate) spread: f64,
    pub(crate) tail: Tail,
}

/// The I/Os that take longer than others because they collide with writes and erases, or are retried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail {
    /// Share of I/Os in the tail.
    pub(crate) share: f64,
    /// Shortest latency, as a multiple of the body's median.
    pub(crate) from: f64,
    /// Longest latency, as a multiple of the shortest.
    pub(crate) to: f64,
    /// Tail index of the Pareto distribution.
    pub(crate) index: f64,
}

impl Tail {
    /// Returns the share of the unbounded Pareto distribution that is above the longest latency.
    fn share_above(self) -> f64 {
        self.to.powf(-self.index)
    }

    /// Draws a latency, as a multiple of the body's median.
    fn draw(self, above: f64, random: &mut Random) -> f64 {
        let rest = 1.0 - random.random::<f64>() * (1.0 - above);
        self.from * rest.powf(-1.0 / self.index)
    }

    /// Returns the variance, in units of the body's median squared.
    fn variance(self) -> f64 {
        let Self { from, to, index, .. } = self;
        // The integral of x^(1 - index), for a distribution that starts at 1.
        let integral = if index == 2.0 { to.ln() } else { (to.powf(2.0 - index) - 1.0) / (2.0 - index) };
        from * from * index * integral / (1.0 - self.share_above()) - self.mean().powi(2)
    }

    /// Returns the mean of the bounded Pareto distribution, as a multiple of the body's median.
    pub(crate) fn mean(self) -> f64 {
        let Self { from, to, index, .. } = self;
        from * index / (index - 1.0) * (1.0 - to.powf(1.0 - index)) / (1.0 - self.share_above())
    }
}

/// Latency in the middle of each cell, in nanoseconds.
static MIDDLES: LazyLock<[u64; OVERFLOW + 1]> = LazyLock::new(|| {
    let bound = |cell: usize| 1e9 * (f64::from(ZERO_EXPONENT) + (cell + 1 - FIRST) as f64 / 8.0).exp2();
    std::array::from_fn(|cell| match cell {
        ..FIRST => ZERO_BUCKET_NS / 2,
        OVERFLOW.. => LIMIT_NS - 1,
        _ => f64::midpoint(bound(cell - 1), bound(cell)) as u64,
    })
});

/// The cumulative normal distribution from -[`WIDEST`] up, by Simpson's rule.
static NORMAL: LazyLock<Vec<f64>> = LazyLock::new(|| {
    let density = |z: f64| (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let mut sum = 0.0;
    let step = 1.0 / STEPS;
    (0..=(2.0 * WIDEST * STEPS) as usize)
        .map(|n| {
            let z = n as f64 * step - WIDEST;
            if n > 0 {
                sum += step / 6.0 * (density(z - step) + 4.0 * density(z - step / 2.0) + density(z));
            }
            sum
        })
        .collect()
});

/// Returns the share of a normal distribution below `z`.
pub(crate) fn normal(z: f64) -> f64 {
    if z >= WIDEST {
        return 1.0;
    }
    let place = (z + WIDEST).max(0.0) * STEPS;
    let index = place as usize;
    let (below, above) = (NORMAL[index], NORMAL[index + 1]);
    below + (above - below) * (place - index as f64)
}

/// Returns the latency that represents all latencies in a cell.
pub(crate) fn middle(cell: usize) -> u64 {
    MIDDLES[cell.min(OVERFLOW)]
}

/// Returns the cell of a latency in seconds.
pub(crate) fn cell_of(seconds: f64) -> usize {
    cell(((seconds * 1e9) as u64).min(LIMIT_NS - 1))
}

impl Latency {
    /// Returns the mean in seconds. The caller passes the tail's mean, because many latencies share it.
    pub(crate) fn mean(self, tail: f64) -> f64 {
        let nepers = self.spread * std::f64::consts::LN_2;
        let body = (nepers * nepers / 2.0).exp();
        self.median * ((1.0 - self.tail.share) * body + self.tail.share * tail)
    }

    /// Draws `count` latencies, and calls `add` with each cell and the number of latencies in it.
    pub(crate) fn draw(self, count: u64, random: &mut Random, mut add: impl FnMut(usize, u64)) {
        let in_tail = binomial(count, self.tail.share, random);
        self.draw_body(count - in_tail, random, &mut add);
        for _ in 0..in_tail.min(FEW) {
            add(self.draw_tail(random), 1);
        }
        if let Some(rest) = in_tail.checked_sub(FEW) {
            self.split_tail(rest, random, &mut add);
        }
    }

    /// Draws the sum of `count` latencies, in seconds. The sum of many is drawn in one step, because it is nearly normally
    /// distributed.
    pub(crate) fn draw_sum(self, count: u64, random: &mut Random) -> f64 {
        let in_tail = binomial(count, self.tail.share, random);
        let body = count - in_tail;
        let bodies = if body <= FEW_IN_SUM {
            let each = |_| {
                let z: f64 = StandardNormal.sample(random);
                (self.spread * z).exp2()
            };
            (0..body).map(each).sum()
        } else {
            let variance = (self.spread * std::f64::consts::LN_2).powi(2);
            let mean = (variance / 2.0).exp();
            let of_one = mean * variance.exp_m1().sqrt();
            let z: f64 = StandardNormal.sample(random);
            (body as f64 * mean + (body as f64).sqrt() * of_one * z).max(0.0)
        };
        let few = in_tail.min(FEW_IN_SUM);
        let above = if few > 0 { self.tail.share_above() } else { 0.0 };
        let mut tails: f64 = (0..few).map(|_| self.tail.draw(above, random)).sum();
        let rest = (in_tail - few) as f64;
        if rest > 0.0 {
            let z: f64 = StandardNormal.sample(random);
            tails += (rest * self.tail.mean() + (rest * self.tail.variance()).sqrt() * z).max(0.0);
        }
        self.median * (bodies + tails)
    }

    fn draw_body(self, count: u64, random: &mut Random, add: &mut impl FnMut(usize, u64)) {
        if count <= FEW {
            for _ in 0..count {
                let z: f64 = StandardNormal.sample(random);
                add(cell_of(self.median * (self.spread * z).exp2()), 1);
            }
            return;
        }
        let middle = self.median.log2();
        let first = cell_of((middle - WIDEST * self.spread).exp2());
        let below = |cell: usize| normal((upper_octave(cell) - middle) / self.spread);
        split(count, first, below, random, add);
    }

    fn draw_tail(self, random: &mut Random) -> usize {
        cell_of(self.median * self.tail.draw(self.tail.share_above(), random))
    }

    fn split_tail(self, count: u64, random: &mut Random, add: &mut impl FnMut(usize, u64)) {
        let Tail { from, index, .. } = self.tail;
        let lowest = (self.median * from).log2();
        let longer = self.tail.share_above();
        let below = |cell: usize| {
            let above = (-index * (upper_octave(cell) - lowest).max(0.0)).exp2();
            ((1.0 - above) / (1.0 - longer)).min(1.0)
        };
        split(count, cell_of(self.median * from), below, random, add);
    }
}

/// Returns the base-2 logarithm of a cell's upper bound in seconds.
fn upper_octave(cell: usize) -> f64 {
    if cell >= OVERFLOW {
        return f64::INFINITY;
    }
    f64::from(ZERO_EXPONENT) + (cell as f64 + 1.0 - FIRST as f64) / f64::from(1 << SCHEMA)
}

/// Splits a count across the cells from `first` up, using the cumulative share below each cell's upper bound.
fn split(
    count: u64,
    first: usize,
    below: impl Fn(usize) -> f64,
    random: &mut Random,
    add: &mut impl FnMut(usize, u64),
) {
    let (mut left, mut before) = (count, 0.0);
    for cell in first..=OVERFLOW {
        if left == 0 {
            break;
        }
        let now = below(cell);
        let taken = if now >= 1.0 { left } else { binomial(left, (now - before) / (1.0 - before), random) };
        if taken > 0 {
            add(cell, taken);
        }
        left -= taken;
        before = now;
    }
}

/// Draws the number of successes among `count` trials, each with probability `share`.
pub(crate) fn binomial(count: u64, share: f64, random: &mut Random) -> u64 {
    if count == 0 || share <= 0.0 {
        return 0;
    }
    if share >= 1.0 {
        return count;
    }
    let mean = count as f64 * share;
    if mean < RARE {
        return u64::from(random.random::<f64>() < mean);
    }
    let variance = mean * (1.0 - share);
    if variance > LARGE {
        return approximately(mean, variance, random).min(count);
    }
    Binomial::new(count, share).map_or(0, |binomial| binomial.sample(random))
}

/// Draws the number of events from a Poisson distribution with this mean.
pub(crate) fn poisson(mean: f64, random: &mut Random) -> u64 {
    if mean > LARGE {
        return approximately(mean, mean, random);
    }
    Poisson::new(mean).map_or(0, |poisson| poisson.sample(random) as u64)
}

fn approximately(mean: f64, variance: f64, random: &mut Random) -> u64 {
    let z: f64 = StandardNormal.sample(random);
    (mean + variance.sqrt() * z).round().max(0.0) as u64
}
