//! Latencies in the buckets of Prometheus' schema 3: the one histogram of the collector, the formats, the API and reports.

use std::ops::RangeBounds;

use biolat_common::bucket::{self, SCHEMA, TOP_EXPONENT, ZERO_EXPONENT};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct as _};

use crate::saturating::{add, sum};

/// The maximum error of [`Bounds::middle`], in percent: 2^(1/16) is 4.4 % above 1.
pub const ERROR_PERCENT: f64 = 4.4;

/// Counts by latency, and the sum of the latencies.
///
/// As JSON it is the histogram of `docs/api.md`, which has the count as a field and the sum in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Parsed")]
pub struct Histogram {
    /// At or below 2^-20 s.
    pub zero: u64,
    /// Native index and count of every bucket that is not empty, in ascending order. Bucket `i` holds latencies above
    /// 2^((i-1)/8) and at most 2^(i/8) seconds.
    pub buckets: Vec<(i32, u64)>,
    /// Above 2^10 s.
    pub overflow: u64,
    /// The sum in nanoseconds.
    pub sum_ns: u128,
}

impl Histogram {
    /// Without any latency.
    #[must_use]
    pub const fn new() -> Self {
        Self { zero: 0, buckets: Vec::new(), overflow: 0, sum_ns: 0 }
    }

    /// From the counts of the probe's cells.
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

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        sum([&self.zero, &self.overflow, &self.count_in(..)])
    }

    /// The number of latencies in the buckets of these indices.
    #[must_use]
    pub fn count_in(&self, indices: impl RangeBounds<i32>) -> u64 {
        sum(self.buckets.iter().filter(|(index, _)| indices.contains(index)).map(|(_, count)| count))
    }

    /// The number of latencies above 2^exponent seconds, which must be in the range of the buckets.
    #[must_use]
    pub fn count_above(&self, exponent: i32) -> u64 {
        self.count_in((exponent << SCHEMA) + 1..).saturating_add(self.overflow)
    }

    /// The sum of the latencies.
    #[must_use]
    pub fn sum_seconds(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The mean in seconds. None without any latency.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_seconds() / count as f64)
    }

    /// The bucket of the latency that this share of all does not exceed: 0.99 is the 99th percentile, 1 the maximum. None
    /// without any latency.
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

    /// The bucket of the longest latency.
    #[must_use]
    pub fn max(&self) -> Option<Bounds> {
        self.percentile(1.0)
    }

    /// The range and the count of each bucket that is not empty, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = (Bounds, u64)> {
        self.ranges_by(Bounds::of_bucket)
    }

    /// The same with another range for each index.
    pub fn ranges_by(&self, bounds: impl Fn(i32) -> Bounds) -> impl Iterator<Item = (Bounds, u64)> {
        let between = self.buckets.iter().map(move |&(index, count)| (bounds(index), count));
        let all = std::iter::once((Bounds::ZERO, self.zero)).chain(between);
        all.chain([(Bounds::OVERFLOW, self.overflow)]).filter(|&(_, count)| count > 0)
    }

    /// Index and count of every bucket at a coarser schema. Exact, as coarser buckets are unions of finer ones.
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

    /// Counts by power of two: `k` is above 2^(k-1) and at most 2^k seconds.
    #[must_use]
    pub fn octaves(&self) -> Vec<(i32, u64)> {
        self.at_schema(0)
    }

    /// Adds another one's latencies.
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

    /// The latencies that came since `before`. A count that is lower than before counts as none.
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

/// A histogram as another program wrote it. Its `count` follows from the rest.
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
        // A cast saturates, and makes 0 of a negative number.
        Self { zero, buckets, overflow, sum_ns: (seconds * 1e9).round() as u128 }
    }
}

/// The range of a latency: above `lower`, and at most `upper`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// In seconds.
    pub lower: f64,
    /// In seconds; infinite for the overflow.
    pub upper: f64,
}

impl Bounds {
    /// Of the zero bucket.
    pub const ZERO: Self = Self { lower: 0.0, upper: pow2(ZERO_EXPONENT) };
    /// Of the overflow.
    pub const OVERFLOW: Self = Self { lower: pow2(TOP_EXPONENT), upper: f64::INFINITY };

    /// Of a bucket.
    #[must_use]
    pub fn of_bucket(index: i32) -> Self {
        Self { lower: upper_bound(index - 1), upper: upper_bound(index) }
    }

    /// The geometric middle, which is off by [`ERROR_PERCENT`] at most. None for the zero bucket and the overflow.
    #[must_use]
    pub fn middle(self) -> Option<f64> {
        (self.lower > 0.0 && self.upper.is_finite()).then(|| (self.lower * self.upper).sqrt())
    }
}

/// The index of the bucket at a coarser schema that contains this one. An upper bound is inclusive, so that indices round up.
#[must_use]
pub fn index_at_schema(index: i32, schema: u32) -> i32 {
    let shift = SCHEMA - schema;
    (index + (1 << shift) - 1) >> shift
}

/// The upper bound of a bucket in seconds.
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
    fn cells_become_buckets() {
        let mut cells = [0_u64; CELLS];
        for ns in [0, 953, 954, 1_000_000_000, 1_000_000_001, 1 << 39, 1_024_000_000_001] {
            cells[cell(ns)] += 1;
        }
        let histogram = Histogram::from_cells(cells, 7);
        assert_eq!((histogram.zero, histogram.overflow, histogram.count()), (2, 1, 7));
        assert_eq!(histogram.buckets, [(-159, 1), (0, 1), (1, 1), (73, 1)]);
    }

    /// Of 100 latencies: 10 in the zero bucket, 80 of at most a second, 9 of at most two, 1 in the overflow.
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
        assert_eq!(Histogram::new().percentile(0.5), None);
        assert_eq!(Histogram::new().mean(), None);
    }

    #[test]
    fn the_middle_is_as_good_as_its_error_says() {
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
    fn coarser_schemas() {
        let histogram = histogram(1, &[(-8, 1), (-7, 2), (0, 4), (1, 8), (8, 16), (9, 32)], 1);
        assert_eq!(histogram.octaves(), [(-1, 1), (0, 6), (1, 24), (2, 32)]);
        assert_eq!(histogram.at_schema(3), histogram.buckets);
        assert_eq!((histogram.count_in(1..), histogram.count_in(-7..=0)), (56, 6));
        assert_eq!([-2, -1, 0, 1, 2].map(|exponent| histogram.count_above(exponent)), [64, 63, 57, 33, 1]);
    }

    #[test]
    fn differences_and_sums() {
        let before = Histogram { sum_ns: 1_500, ..histogram(1, &[(3, 2), (5, 5)], 0) };
        let after = Histogram { sum_ns: 4_000, ..histogram(1, &[(3, 2), (4, 1), (5, 8)], 2) };
        let came = after.since(&before);
        assert_eq!(came, Histogram { sum_ns: 2_500, ..histogram(0, &[(4, 1), (5, 3)], 2) });
        assert_eq!(came.mean(), Some(2.5e-6 / 6.0));
        let mut sum = before;
        sum.add(&came);
        assert_eq!(sum, after);
        // Counters that went back, which none should.
        assert_eq!(Histogram::new().since(&sum), Histogram::new());
    }

    #[test]
    fn json_is_that_of_the_api() {
        let histogram = Histogram { sum_ns: 2_500_000_001, ..histogram(1, &[(-80, 2), (3, 4)], 5) };
        let json = r#"{"count":12,"seconds":2.500000001,"zero":1,"overflow":5,"buckets":[[-80,2],[3,4]]}"#;
        assert_eq!(serde_json::to_string(&histogram).unwrap(), json);
        assert_eq!(serde_json::from_str::<Histogram>(json).unwrap(), histogram);
    }

    #[test]
    fn json_in_disorder() {
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
        fn json_is_read_back(histogram in any_histogram()) {
            let json = serde_json::to_string(&histogram).unwrap();
            let read: Histogram = serde_json::from_str(&json).unwrap();
            // A sum above 2^53 ns, 104 days, is rounded.
            prop_assert!(read.sum_ns.abs_diff(histogram.sum_ns) <= histogram.sum_ns >> 51);
            prop_assert_eq!(Histogram { sum_ns: 0, ..read }, Histogram { sum_ns: 0, ..histogram });
        }
    }
}
