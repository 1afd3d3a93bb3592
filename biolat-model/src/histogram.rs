//! Latency histograms in Prometheus' schema 3, shared by the collector, all formats, the API and the reports.

use std::ops::RangeBounds;

use biolat_common::bucket::{self, SCHEMA, TOP_EXPONENT, ZERO_EXPONENT};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

use crate::saturating::{add, sum};

/// Maximum error of [`Bounds::middle`] in percent: 2^(1/16) is 4.4 % above 1.
pub const ERROR_PERCENT: f64 = 4.4;

/// Counts by latency, and the sum of the latencies.
///
/// Its JSON is the histogram described in `docs/api.md`, which also has the count, and gives the sum in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Parsed")]
pub struct Histogram {
    /// Latencies up to 2^-20 s.
    pub zero: u64,
    /// Native index and count of every non-empty bucket, in ascending order. Bucket `i` holds latencies above 2^((i-1)/8)
    /// seconds, up to and including 2^(i/8) seconds.
    pub buckets: Vec<(i32, u64)>,
    /// Latencies above 2^10 s.
    pub overflow: u64,
    /// Sum of the latencies in nanoseconds.
    pub sum_ns: u128,
}

impl Histogram {
    /// Returns an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self { zero: 0, buckets: Vec::new(), overflow: 0, sum_ns: 0 }
    }

    /// Builds a histogram from the counts in the probe's cells.
    pub fn from_cells(cells: impl IntoIterator<Item = u64>, sum_ns: u128) -> Self {
        let mut histogram = Self { sum_ns, ..Self::new() };
        for (cell, count) in cells.into_iter().enumerate().filter(|&(_, count)| count > 0) {
            match cell {
                ..bucket::FIRST => histogram.zero += count,
                bucket::OVERFLOW.. => histogram.overflow += count,
                _ => histogram.buckets.push((bucket::native_index(cell), count)),
            }
        }
        histogram
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        sum([&self.zero, &self.overflow, &self.count_in(..)])
    }

    /// Returns the number of latencies in buckets with these indices.
    #[must_use]
    pub fn count_in(&self, indices: impl RangeBounds<i32>) -> u64 {
        sum(self.buckets.iter().filter(|(index, _)| indices.contains(index)).map(|(_, count)| count))
    }

    /// Returns the number of latencies above 2^exponent seconds, which has to be within the range of the buckets.
    #[must_use]
    pub fn count_above(&self, exponent: i32) -> u64 {
        self.count_in((exponent << SCHEMA) + 1..).saturating_add(self.overflow)
    }

    /// Returns the sum of the latencies.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// Returns the mean in seconds, or `None` if the histogram is empty.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_seconds() / count as f64)
    }

    /// Returns the bucket that contains a percentile, given as a share: 0.99 for the 99th percentile, 1 for the maximum. `None`
    /// if the histogram is empty.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<Bounds> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * share).ceil() as u64).clamp(1, count);
        let mut cumulative = self.zero;
        if cumulative >= rank {
            return Some(Bounds::ZERO);
        }
        let bucket = self.buckets.iter().find(|(_, count)| {
            add(&mut cumulative, *count);
            cumulative >= rank
        });
        Some(bucket.map_or(Bounds::OVERFLOW, |&(index, _)| Bounds::of_bucket(index)))
    }

    /// Returns the bucket of the longest latency.
    #[must_use]
    pub fn max(&self) -> Option<Bounds> {
        self.percentile(1.0)
    }

    /// Returns the range and count of each non-empty bucket, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = (Bounds, u64)> {
        self.ranges_by(Bounds::of_bucket)
    }

    /// Like [`ranges`](Self::ranges), with a custom range for each index.
    pub fn ranges_by(&self, bounds: impl Fn(i32) -> Bounds) -> impl Iterator<Item = (Bounds, u64)> {
        let between = self.buckets.iter().map(move |&(index, count)| (bounds(index), count));
        let all = std::iter::once((Bounds::ZERO, self.zero)).chain(between);
        all.chain([(Bounds::OVERFLOW, self.overflow)]).filter(|&(_, count)| count > 0)
    }

    /// Returns the index and count of each bucket at a coarser schema. This is exact, because coarser buckets are unions of finer
    /// ones.
    #[must_use]
    pub fn at_schema(&self, schema: u32) -> Vec<(i32, u64)> {
        let mut merged: Vec<(i32, u64)> = Vec::with_capacity(self.buckets.len() + 1);
        for &(index, count) in &self.buckets {
            let index = index_at_schema(index, schema);
            match merged.last_mut() {
                Some((last, sum)) if *last == index => add(sum, count),
                _ => merged.push((index, count)),
            }
        }
        merged
    }

    /// Returns counts by power of two: index `k` is for latencies above 2^(k-1) seconds, up to and including 2^k seconds.
    #[must_use]
    pub fn octaves(&self) -> Vec<(i32, u64)> {
        self.at_schema(0)
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        add(&mut self.zero, other.zero);
        add(&mut self.overflow, other.overflow);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        for &(index, count) in &other.buckets {
            match self.buckets.binary_search_by_key(&index, |&(index, _)| index) {
                Ok(place) => add(&mut self.buckets[place].1, count),
                Err(place) => self.buckets.insert(place, (index, count)),
            }
        }
    }

    /// Returns the latencies recorded since `before`. A count that went down yields 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut earlier = before.buckets.iter().copied().peekable();
        let grown = self.buckets.iter().filter_map(|&(index, count)| {
            while earlier.next_if(|&(other, _)| other < index).is_some() {}
            let had = earlier.next_if(|&(other, _)| other == index).map_or(0, |(_, count)| count);
            let grown = count.saturating_sub(had);
            (grown > 0).then_some((index, grown))
        });
        Self {
            buckets: grown.collect(),
            zero: self.zero.saturating_sub(before.zero),
            overflow: self.overflow.saturating_sub(before.overflow),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { zero, buckets, overflow, sum_ns: _ } = self;
        let mut fields = serializer.serialize_struct("Histogram", 5)?;
        fields.serialize_field("count", &self.count())?;
        fields.serialize_field("seconds", &self.sum_seconds())?;
        fields.serialize_field("zero", zero)?;
        fields.serialize_field("overflow", overflow)?;
        fields.serialize_field("buckets", buckets)?;
        fields.end()
    }
}

/// A histogram as written by another program. Its `count` is ignored, because it follows from the other fields.
#[derive(Deserialize)]
struct Parsed {
    #[serde(rename = "count")]
    _count: u64,
    seconds: f64,
    zero: u64,
    overflow: u64,
    buckets: Vec<(i32, u64)>,
}

impl From<Parsed> for Histogram {
    fn from(Parsed { seconds, zero, overflow, mut buckets, .. }: Parsed) -> Self {
        buckets.retain(|&(_, count)| count > 0);
        if !buckets.is_sorted_by_key(|&(index, _)| index) {
            buckets.sort_unstable_by_key(|&(index, _)| index);
        }
        buckets.dedup_by(|(index, count), (kept, sum)| {
            let is_same = index == kept;
            if is_same {
                add(sum, *count);
            }
            is_same
        });
        // The cast saturates, and turns a negative number into 0.
        Self { zero, buckets, overflow, sum_ns: (seconds * 1e9).round() as u128 }
    }
}

/// Range of a latency: above `lower`, up to and including `upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// In seconds.
    pub lower: f64,
    /// In seconds; infinite for the overflow bucket.
    pub upper: f64,
}

impl Bounds {
    /// Range of the zero bucket.
    pub const ZERO: Self = Self { lower: 0.0, upper: pow2(ZERO_EXPONENT) };
    /// Range of the overflow bucket.
    pub const OVERFLOW: Self = Self { lower: pow2(TOP_EXPONENT), upper: f64::INFINITY };

    /// Returns the range of a bucket.
    #[must_use]
    pub fn of_bucket(index: i32) -> Self {
        Self { lower: upper_bound(index - 1), upper: upper_bound(index) }
    }

    /// Returns the geometric mean of the bounds, which is off by at most [`ERROR_PERCENT`]. `None` for the zero and overflow
    /// buckets.
    #[must_use]
    pub fn middle(self) -> Option<f64> {
        (self.lower > 0.0 && self.upper.is_finite()).then(|| (self.lower * self.upper).sqrt())
    }
}

/// Returns the index of the bucket that contains this one at a coarser schema. Upper bounds are inclusive, so indices round up.
#[must_use]
pub fn index_at_schema(index: i32, schema: u32) -> i32 {
    let shift = SCHEMA - schema;
    (index + (1 << shift) - 1) >> shift
}

/// Returns the upper bound of a bucket in seconds.
#[must_use]
pub fn upper_bound(index: i32) -> f64 {
    (f64::from(index) / f64::from(1 << SCHEMA)).exp2()
}

const fn pow2(exponent: i32) -> f64 {
    let whole = (1_u64 << exponent.unsigned_abs()) as f64;
    if exponent < 0 { 1.0 / whole } else { whole }
}

#[cfg(test)]
mod tests {
    use biolat_common::bucket::{BUCKETS, CELLS, FIRST_NATIVE_INDEX, cell};
    use proptest::{collection::btree_map, prelude::*};

    use super::{Bounds, ERROR_PERCENT, Histogram};

    fn histogram(zero: u64, buckets: &[(i32, u64)], overflow: u64) -> Histogram {
        Histogram { zero, overflow, buckets: buckets.to_vec(), sum_ns: 0 }
    }

    #[test]
    fn converts_cells_to_buckets() {
        let mut cells = [0_u64; CELLS];
        for ns in [0, 953, 954, 1_000_000_000, 1_000_000_001, 1 << 39, 1_024_000_000_001] {
            cells[cell(ns)] += 1;
        }
        let histogram = Histogram::from_cells(cells, 7);
        assert_eq!((histogram.zero, histogram.overflow, histogram.count()), (2, 1, 7));
        assert_eq!(histogram.buckets, [(-159, 1), (0, 1), (1, 1), (73, 1)]);
    }

    /// 100 latencies: 10 in the zero bucket, 80 up to a second, 9 up to two seconds, 1 in the overflow bucket.
    #[test]
    fn returns_percentiles() {
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
        assert_eq!(Histogram::new().percentile(0.5), None);
        assert_eq!(Histogram::new().mean(), None);
    }

    #[test]
    fn middle_is_within_error_percent() {
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
    fn merges_buckets_at_coarser_schemas() {
        let histogram = histogram(1, &[(-8, 1), (-7, 2), (0, 4), (1, 8), (8, 16), (9, 32)], 1);
        assert_eq!(histogram.octaves(), [(-1, 1), (0, 6), (1, 24), (2, 32)]);
        assert_eq!(histogram.at_schema(3), histogram.buckets);
        assert_eq!((histogram.count_in(1..), histogram.count_in(-7..=0)), (56, 6));
        assert_eq!([-2, -1, 0, 1, 2].map(|exponent| histogram.count_above(exponent)), [64, 63, 57, 33, 1]);
    }

    #[test]
    fn since_and_add_are_inverse() {
        let before = Histogram { sum_ns: 1_500, ..histogram(1, &[(3, 2), (5, 5)], 0) };
        let after = Histogram { sum_ns: 4_000, ..histogram(1, &[(3, 2), (4, 1), (5, 8)], 2) };
        let came = after.since(&before);
        assert_eq!(came, Histogram { sum_ns: 2_500, ..histogram(0, &[(4, 1), (5, 3)], 2) });
        assert_eq!(came.mean(), Some(2.5e-6 / 6.0));
        let mut sum = before;
        sum.add(&came);
        assert_eq!(sum, after);
        // Counters that went backwards, which should never happen.
        assert_eq!(Histogram::new().since(&sum), Histogram::new());
    }

    #[test]
    fn json_matches_the_api() {
        let histogram = Histogram { sum_ns: 2_500_000_001, ..histogram(1, &[(-80, 2), (3, 4)], 5) };
        let json = r#"{"count":12,"seconds":2.500000001,"zero":1,"overflow":5,"buckets":[[-80,2],[3,4]]}"#;
        assert_eq!(serde_json::to_string(&histogram).unwrap(), json);
        assert_eq!(serde_json::from_str::<Histogram>(json).unwrap(), histogram);
    }

    #[test]
    fn normalizes_unordered_json() {
        let json = r#"{"count":9,"seconds":-1,"zero":0,"overflow":0,"buckets":[[3,4],[-80,2],[3,1],[7,0]]}"#;
        assert_eq!(
            serde_json::from_str::<Histogram>(json).unwrap(),
            histogram(0, &[(-80, 2), (3, 5)], 0),
            "sorted, merged, and without empty buckets"
        );
        let json = r#"{"count":1,"seconds":1e300,"zero":1,"overflow":0,"buckets":[]}"#;
        let mut huge: Histogram = serde_json::from_str(json).unwrap();
        huge.add(&huge.clone());
        assert_eq!((huge.zero, huge.sum_ns), (2, u128::MAX));
    }

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
        let buckets = btree_map(known, 1..1_u64 << 40, 0..40);
        (0..1_u64 << 40, buckets, 0..1_u64 << 40, any::<u64>()).prop_map(
            |(zero, buckets, overflow, sum_ns)| Histogram {
                zero,
                buckets: buckets.into_iter().collect(),
                overflow,
                sum_ns: sum_ns.into(),
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn percentiles_are_monotone_and_within_bounds(
            histogram in any_histogram(), a in 0.0..=1.0, b in 0.0..=1.0,
        ) {
            let (lower, higher) = if a <= b { (a, b) } else { (b, a) };
            match (histogram.percentile(lower), histogram.percentile(higher), histogram.max()) {
                (Some(lower), Some(higher), Some(max)) => {
                    prop_assert!(lower.upper <= higher.upper && higher.upper <= max.upper);
                    prop_assert!(lower.lower < lower.upper);
                    let is_of_a_bucket = histogram.buckets.iter().any(|&(i, _)| Bounds::of_bucket(i) == higher);
                    prop_assert!(is_of_a_bucket || [Bounds::ZERO, Bounds::OVERFLOW].contains(&higher));
                }
                (lower, ..) => prop_assert!(lower.is_none() && histogram.count() == 0),
            }
        }

        #[test]
        fn merging_adds_and_since_subtracts(a in any_histogram(), b in any_histogram()) {
            let mut sum = a.clone();
            sum.add(&b);
            prop_assert_eq!(sum.count(), a.count() + b.count());
            prop_assert!(sum.buckets.is_sorted_by(|(a, _), (b, _)| a < b));
            prop_assert_eq!(&sum.since(&a), &b);
            prop_assert_eq!(&sum.since(&b), &a);
            for schema in 0..=3 {
                let counts = sum.at_schema(schema).iter().map(|(_, count)| count).sum::<u64>();
                prop_assert_eq!(counts, sum.count_in(..));
            }
        }

        #[test]
        fn json_round_trips(histogram in any_histogram()) {
            let json = serde_json::to_string(&histogram).unwrap();
            let read: Histogram = serde_json::from_str(&json).unwrap();
            // A sum above 2^53 ns (104 days) is rounded.
            prop_assert!(read.sum_ns.abs_diff(histogram.sum_ns) <= histogram.sum_ns >> 51);
            prop_assert_eq!(Histogram { sum_ns: 0, ..read }, Histogram { sum_ns: 0, ..histogram });
        }
    }
}
