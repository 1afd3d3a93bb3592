//! Latency histograms of a size band, with two buckets per octave (schema 1).

use biolat_common::{
    bucket::SCHEMA,
    size::{BAND_CELLS, BAND_SCHEMA},
};
use serde::{Deserialize, Serialize};

use crate::histogram::{Bounds, Histogram, upper_bound};

/// Number of [`SCHEMA`] buckets in one bucket.
const WIDTH: i32 = 1 << (SCHEMA - BAND_SCHEMA);

/// Counts by latency, and the sum of the latencies.
///
/// Its JSON is a histogram as in `docs/api.md`, with the indices of schema 1: bucket `i` holds latencies above 2^((i-1)/2)
/// seconds, up to and including 2^(i/2) seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Histogram", into = "Histogram")]
pub struct BandHistogram(
    /// Each bucket is stored in the last of its four [`SCHEMA`] buckets.
    Histogram,
);

impl BandHistogram {
    /// Builds a histogram from the counts in the probe's cells.
    #[must_use]
    pub fn from_cells(cells: &[u64; BAND_CELLS], sum_ns: u128) -> Self {
        let last_of_four = cells.iter().flat_map(|&count| [0, 0, 0, count]);
        Self(Histogram::from_cells(last_of_four, sum_ns))
    }

    /// Returns the number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.count()
    }

    /// Whether it has no latencies and their sum is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count() == 0 && self.0.sum_ns == 0
    }

    /// Returns the mean in seconds, or `None` if there are no latencies.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        self.0.mean()
    }

    /// Returns the bucket of a percentile, given as a share of all latencies, or `None` if there are no latencies.
    #[must_use]
    pub fn percentile(&self, share: f64) -> Option<Bounds> {
        let bounds = self.0.percentile(share)?;
        Some(if bounds == Bounds::ZERO || bounds == Bounds::OVERFLOW {
            bounds
        } else {
            bounds_of((bounds.upper.log2() * f64::from(1 << SCHEMA)).round() as i32)
        })
    }

    /// Returns the range and count of each non-empty bucket, in ascending order.
    pub fn ranges(&self) -> impl Iterator<Item = (Bounds, u64)> {
        self.0.ranges_by(bounds_of)
    }

    /// Returns the latencies recorded since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.since(&before.0))
    }

    /// Adds the latencies of another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0);
    }

    /// Returns the underlying histogram, which is exact only at schema 1 and coarser.
    #[must_use]
    pub const fn at_most_schema_1(&self) -> &Histogram {
        &self.0
    }
}

/// Returns the range of the bucket whose last [`SCHEMA`] bucket has this index.
fn bounds_of(last: i32) -> Bounds {
    Bounds { lower: upper_bound(last.saturating_sub(WIDTH)), upper: upper_bound(last) }
}

impl From<BandHistogram> for Histogram {
    fn from(BandHistogram(mut histogram): BandHistogram) -> Self {
        histogram.buckets = histogram.at_schema(BAND_SCHEMA);
        histogram
    }
}

impl From<Histogram> for BandHistogram {
    fn from(mut histogram: Histogram) -> Self {
        for (index, _) in &mut histogram.buckets {
            *index = index.saturating_mul(WIDTH);
        }
        Self(histogram)
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::{
        bucket::cell,
        size::{BAND_CELLS, band_cell},
    };

    use super::BandHistogram;
    use crate::histogram::Bounds;

    fn histogram(latencies: &[u64]) -> BandHistogram {
        let mut cells = [0; BAND_CELLS];
        latencies.iter().for_each(|&ns| cells[band_cell(cell(ns))] += 1);
        BandHistogram::from_cells(&cells, latencies.iter().map(|&ns| u128::from(ns)).sum())
    }

    #[test]
    fn has_two_buckets_per_octave() {
        let second = 1_000_000_000;
        let histogram =
            histogram(&[0, 953, second, second + 1, 1_414_213_562, 1_414_213_563, 1 << 39, (1 << 40) - 1]);
        assert_eq!(histogram.count(), 8);
        let written = serde_json::to_string(&histogram).unwrap();
        let json = r#""zero":2,"overflow":1,"buckets":[[0,1],[1,2],[2,1],[19,1]]}"#;
        assert!(written.ends_with(json), "{written}");
        let read: BandHistogram = serde_json::from_str(&written).unwrap();
        assert_eq!(read.at_most_schema_1().buckets, histogram.at_most_schema_1().buckets);
        assert_eq!(histogram.at_most_schema_1().octaves(), [(0, 1), (1, 3), (10, 1)]);
    }

    #[test]
    fn percentiles_use_schema_1_bounds() {
        let histogram = histogram(&[0, 1_000_000_000, 1_414_213_562, (1 << 40) - 1]);
        let at = |share| histogram.percentile(share).unwrap();
        assert_eq!((at(0.0), at(1.0)), (Bounds::ZERO, Bounds::OVERFLOW));
        assert_eq!((at(0.5).lower, at(0.5).upper), (0.5_f64.sqrt(), 1.0));
        assert_eq!((at(0.75).lower, at(0.75).upper), (1.0, 2_f64.sqrt()));
        assert_eq!(BandHistogram::default().percentile(0.5), None);
        let buckets: Vec<_> = histogram.ranges().collect();
        assert_eq!(buckets.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1; 4]);
        assert_eq!(
            buckets.into_iter().map(|(bounds, _)| bounds).collect::<Vec<_>>(),
            [0.0, 0.5, 0.75, 1.0].map(at)
        );
    }
}
