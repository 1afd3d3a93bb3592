//! Request sizes in power-of-two buckets, which are native buckets at schema 0 in bytes.

use biolat_common::size::{CELLS, TOP_EXPONENT, ZERO_EXPONENT};
use serde::{Deserialize, Serialize};

use crate::saturating::{add, sum};

/// Counts by size. The sum is counted separately, because it includes bytes of requests that have not ended yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SizeHistogram {
    /// Requests of at most 256 bytes, which means that they have no data.
    pub zero: u64,
    /// Exponent and count of every non-empty bucket, in ascending order. Bucket `i` holds sizes above 2^(i-1) bytes, up to and
    /// including 2^i bytes, with `i` from 9 to 24.
    pub buckets: Vec<(i32, u64)>,
    /// Requests above 16 MiB.
    pub overflow: u64,
}

impl SizeHistogram {
    /// Builds a histogram from the counts in the probe's cells.
    #[must_use]
    pub fn from_cells(cells: &[u64; CELLS]) -> Self {
        let [zero, buckets @ .., overflow] = cells;
        let buckets = (ZERO_EXPONENT + 1..=TOP_EXPONENT).zip(buckets.iter().copied());
        Self { zero: *zero, buckets: buckets.filter(|(_, count)| *count > 0).collect(), overflow: *overflow }
    }

    /// Returns the counts by cell of [`biolat_common::size`]. Ignores unknown buckets.
    #[must_use]
    pub fn cells(&self) -> [u64; CELLS] {
        let mut cells = [0_u64; CELLS];
        (cells[0], cells[CELLS - 1]) = (self.zero, self.overflow);
        for &(index, count) in &self.buckets {
            if (ZERO_EXPONENT + 1..=TOP_EXPONENT).contains(&index) {
                add(&mut cells[(index - ZERO_EXPONENT) as usize], count);
            }
        }
        cells
    }

    /// Returns the requests counted since `before`. A count that went down yields 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let (now, before) = (self.cells(), before.cells());
        Self::from_cells(&std::array::from_fn(|cell| now[cell].saturating_sub(before[cell])))
    }

    /// Adds the requests of another histogram.
    pub fn add(&mut self, other: &Self) {
        let (own, other) = (self.cells(), other.cells());
        *self = Self::from_cells(&std::array::from_fn(|cell| own[cell].saturating_add(other[cell])));
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn count(&self) -> u64 {
        sum(self.buckets.iter().map(|(_, count)| count).chain([&self.zero, &self.overflow]))
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::size::{CELLS, place};

    use super::SizeHistogram;

    #[test]
    fn converts_cells_to_buckets() {
        let mut cells = [0; CELLS];
        for bytes in [0, 36, 512, 513, 4096, 1 << 24, (1 << 24) + 1] {
            cells[place(bytes).cell()] += 1;
        }
        let sizes = SizeHistogram::from_cells(&cells);
        assert_eq!((sizes.zero, sizes.overflow, sizes.count()), (2, 1, 7));
        assert_eq!(sizes.buckets, [(9, 1), (10, 1), (12, 1), (24, 1)]);
        assert_eq!(sizes.cells(), cells);
    }

    #[test]
    fn since_tolerates_malformed_buckets() {
        let sizes =
            |buckets: &[(i32, u64)]| SizeHistogram { zero: 1, buckets: buckets.to_vec(), overflow: 0 };
        let now = sizes(&[(i32::MAX, 9), (16, 5), (12, 3), (16, 2), (i32::MIN, 9)]);
        let grown = now.since(&sizes(&[(16, 3), (12, 9)]));
        assert_eq!((grown.zero, grown.buckets), (0, vec![(16, 4)]));
    }
}
