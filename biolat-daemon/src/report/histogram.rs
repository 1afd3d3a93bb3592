//! Latencies of a window: what came between two snapshots, added up over ops or devices, and what can be said of them.

use std::{
    collections::BTreeMap,
    ops::{AddAssign, Sub},
};

use biolat_common::bucket::{TOP_EXPONENT, ZERO_EXPONENT};

use crate::api;

/// Buckets for each power of two.
const PER_OCTAVE: f64 = 8.0;

/// By how much the geometric middle of a bucket can be off: 2^(1/16) is 4.4 % above 1.
pub const ERROR_PERCENT: f64 = 4.4;

/// Latencies, by the native index of their bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// At or below 2^-20 s.
    pub zero: u64,
    /// Above 2^10 s.
    pub overflow: u64,
    /// The others. No bucket is empty.
    pub buckets: BTreeMap<i32, u64>,
    /// Their sum.
    pub seconds: f64,
}

/// Where a latency lies: above `lower`, and at most `upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// In seconds.
    pub lower: f64,
    /// In seconds; infinite for what is above the range.
    pub upper: f64,
}

impl Bounds {
    const ZERO: Self = Self { lower: 0.0, upper: pow2(ZERO_EXPONENT) };
    const OVERFLOW: Self = Self { lower: pow2(TOP_EXPONENT), upper: f64::INFINITY };

    /// Of a bucket.
    #[must_use]
    pub fn of_bucket(index: i32) -> Self {
        let bound = |index: i32| (f64::from(index) / PER_OCTAVE).exp2();
        Self { lower: bound(index - 1), upper: bound(index) }
    }

    /// The geometric middle, which is off by [`ERROR_PERCENT`] at the most; none for what is below or above the range.
    #[must_use]
    pub fn middle(self) -> Option<f64> {
        (self.lower > 0.0 && self.upper.is_finite()).then(|| (self.lower * self.upper).sqrt())
    }
}

const fn pow2(exponent: i32) -> f64 {
    let whole = (1_u64 << exponent.unsigned_abs()) as f64;
    if exponent < 0 { 1.0 / whole } else { whole }
}

impl Histogram {
    /// How many latencies there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.zero + self.overflow + self.buckets.values().sum::<u64>()
    }

    /// Their mean in seconds; none of nothing.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.seconds / count as f64)
    }

    /// Where that one lies than which this share of all is not longer: 0.99 is the 99th percentile, 1 the longest. None
    /// of nothing.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<Bounds> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count);
        let mut reached = self.zero;
        if reached >= rank {
            return Some(Bounds::ZERO);
        }
        for (&index, &count) in &self.buckets {
            reached += count;
            if reached >= rank {
                return Some(Bounds::of_bucket(index));
            }
        }
        Some(Bounds::OVERFLOW)
    }

    /// Where the longest one lies.
    #[must_use]
    pub fn max(&self) -> Option<Bounds> {
        self.percentile(1.0)
    }

    /// Counts by power of two: row `k` is above 2^(k-1) and at most 2^k seconds. Exact, as a bucket lies in one of them.
    #[must_use]
    pub fn octaves(&self) -> BTreeMap<i32, u64> {
        let mut octaves = BTreeMap::new();
        for (&index, &count) in &self.buckets {
            *octaves.entry((index + 7) >> 3).or_default() += count;
        }
        octaves
    }
}

impl From<&api::Histogram> for Histogram {
    fn from(told: &api::Histogram) -> Self {
        Self {
            zero: told.zero,
            overflow: told.overflow,
            buckets: told.buckets.iter().copied().filter(|(_, count)| *count > 0).collect(),
            seconds: told.seconds,
        }
    }
}

/// What came since.
impl Sub<&Self> for Histogram {
    type Output = Self;

    fn sub(mut self, before: &Self) -> Self {
        self.zero = self.zero.saturating_sub(before.zero);
        self.overflow = self.overflow.saturating_sub(before.overflow);
        self.seconds = (self.seconds - before.seconds).max(0.0);
        self.buckets.retain(|index, count| {
            *count = count.saturating_sub(before.buckets.get(index).copied().unwrap_or_default());
            *count > 0
        });
        self
    }
}

impl AddAssign<&Self> for Histogram {
    fn add_assign(&mut self, other: &Self) {
        self.zero += other.zero;
        self.overflow += other.overflow;
        self.seconds += other.seconds;
        for (&index, &count) in &other.buckets {
            *self.buckets.entry(index).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bounds, ERROR_PERCENT, Histogram};

    fn histogram(zero: u64, buckets: &[(i32, u64)], overflow: u64) -> Histogram {
        Histogram { zero, overflow, buckets: buckets.iter().copied().collect(), seconds: 0.0 }
    }

    /// Of 100 latencies: 10 in the zero bucket, 80 of at most a second, 9 of at most two, 1 too long for any bucket.
    #[test]
    fn percentiles() {
        let histogram = histogram(10, &[(0, 80), (8, 9)], 1);
        let at = |share| histogram.percentile(share).unwrap();
        assert_eq!(histogram.count(), 100);
        assert_eq!(at(0.0), Bounds { lower: 0.0, upper: 1.0 / 1_048_576.0 });
        assert_eq!(at(0.1).lower, 0.0);
        assert_eq!(at(0.11), Bounds { lower: 2_f64.powf(-0.125), upper: 1.0 });
        assert_eq!(at(0.9).upper, 1.0);
        assert_eq!(at(0.91), Bounds { lower: 2_f64.powf(0.875), upper: 2.0 });
        assert_eq!(at(0.99).upper, 2.0);
        assert_eq!(at(0.991), Bounds { lower: 1024.0, upper: f64::INFINITY });
        assert_eq!(histogram.max(), Some(at(1.0)));
        assert_eq!(Histogram::default().percentile(0.5), None);
        assert_eq!(Histogram::default().mean(), None);
    }

    #[test]
    fn the_middle_is_as_good_as_it_is_said_to_be() {
        let bounds = Bounds::of_bucket(-80);
        let middle = bounds.middle().unwrap();
        for edge in [bounds.lower, bounds.upper] {
            let off = (middle / edge - 1.0).abs() * 100.0;
            assert!(off < ERROR_PERCENT + 0.03 && off > ERROR_PERCENT - 0.2, "{off} %");
        }
        assert_eq!(Bounds::ZERO.middle(), None);
        assert_eq!(Bounds::OVERFLOW.middle(), None);
    }

    #[test]
    fn rows_of_powers_of_two() {
        let octaves = histogram(1, &[(-8, 1), (-7, 2), (0, 4), (1, 8), (8, 16), (9, 32)], 1).octaves();
        assert_eq!(octaves.into_iter().collect::<Vec<_>>(), [(-1, 1), (0, 6), (1, 24), (2, 32)]);
    }

    #[test]
    fn differences_and_sums() {
        let before = Histogram { seconds: 1.5, ..histogram(1, &[(3, 2), (5, 5)], 0) };
        let after = Histogram { seconds: 4.0, ..histogram(1, &[(3, 2), (4, 1), (5, 8)], 2) };
        let came = after.clone() - &before;
        assert_eq!(came, Histogram { seconds: 2.5, ..histogram(0, &[(4, 1), (5, 3)], 2) });
        assert_eq!(came.mean(), Some(2.5 / 6.0));
        let mut sum = before;
        sum += &came;
        assert_eq!(sum, after);
        // Counters that went back, which none should, are not four billion.
        assert_eq!(Histogram::default() - &sum, Histogram::default());
    }
}
