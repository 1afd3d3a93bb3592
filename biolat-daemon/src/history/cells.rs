//! The counts of one histogram as an array, to add to, and as bits.

use std::ops::Range;

use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};

use super::bits::{BitReader, BitWriter, length};
use crate::histogram::Histogram;

/// No cell; any range can be joined to it.
const NONE: Range<usize> = Range { start: usize::MAX, end: 0 };

/// What is expected of the length of the first count.
const COUNT_LENGTH: u32 = 1;

/// Latencies of a device and op.
pub(super) type LatencyCells = Cells<{ BUCKETS + 2 }>;

/// Latencies of a band of sizes, or of a workload: of four buckets each.
pub(super) type BandCells = Cells<{ BUCKETS / 4 + 2 }>;

/// Latencies that came in an interval: the zero bucket, all others, and the overflow.
#[derive(Clone)]
pub(super) struct Cells<const CELLS: usize> {
    counts: [u64; CELLS],
    /// All others are zero.
    touched: Range<usize>,
    /// The sum in nanoseconds, modulo 2^64: 584 years of latency in one interval.
    pub(super) sum_ns: u64,
}

impl<const CELLS: usize> Default for Cells<CELLS> {
    fn default() -> Self {
        Self { counts: [0; CELLS], touched: NONE, sum_ns: 0 }
    }
}

impl<const CELLS: usize> Cells<CELLS> {
    /// Buckets of schema 3 in a cell.
    const WIDTH: usize = BUCKETS / (CELLS - 2);
    /// What is expected of the lengths of the first cell's number, and of the number of cells after it.
    const FIRST_LENGTH: u32 = CELLS.ilog2();
    const RUN_LENGTH: u32 = Self::FIRST_LENGTH - 1;

    /// The cell of a bucket of schema 3; none if there is no such bucket.
    fn cell(index: i32) -> Option<usize> {
        let bucket = usize::try_from(index.checked_sub(FIRST_NATIVE_INDEX)?).ok()?;
        (bucket < BUCKETS).then_some(bucket / Self::WIDTH + 1)
    }

    /// The number of latencies.
    pub(super) fn count(&self) -> u64 {
        self.cells().iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }

    pub(super) fn clear(&mut self) {
        if !self.touched.is_empty() {
            self.counts[self.touched.clone()].fill(0);
        }
        self.touched = NONE;
        self.sum_ns = 0;
    }

    #[inline]
    fn add(&mut self, cell: usize, count: u64) {
        self.counts[cell] += count;
        self.touched.start = self.touched.start.min(cell);
        self.touched.end = self.touched.end.max(cell + 1);
    }

    /// Adds what came since `before`. False if any count is lower than before, so that they are no such counts.
    pub(super) fn add_growth(&mut self, before: &Histogram, after: &Histogram) -> bool {
        let mut is_continued = true;
        let mut grow = |cells: &mut Self, cell: usize, had: u64, has: u64| {
            is_continued &= has >= had;
            if has > had {
                cells.add(cell, has - had);
            }
        };
        grow(self, 0, before.zero, after.zero);
        grow(self, CELLS - 1, before.overflow, after.overflow);
        let mut earlier = before.buckets.iter();
        let mut had = earlier.next();
        for &(index, count) in &after.buckets {
            let known = match had {
                Some(&(other, known)) if other == index => {
                    had = earlier.next();
                    known
                }
                _ => 0,
            };
            if count != known
                && let Some(cell) = Self::cell(index)
            {
                grow(self, cell, known, count);
            }
        }
        self.sum_ns = self.sum_ns.wrapping_add(after.sum_ns.wrapping_sub(before.sum_ns) as u64);
        // Each bucket of before is there.
        is_continued && had.is_none() && after.sum_ns >= before.sum_ns
    }

    pub(super) fn is_empty(&self) -> bool {
        self.touched.is_empty() && self.sum_ns == 0
    }

    /// With the indices of the cells' own schema.
    pub(super) fn histogram(&self) -> Histogram {
        let index = |cell: usize| (FIRST_NATIVE_INDEX + (cell * Self::WIDTH) as i32 - 1) / Self::WIDTH as i32;
        let buckets = (1..).zip(&self.counts[1..CELLS - 1]).filter(|(_, count)| **count > 0);
        Histogram {
            zero: self.counts[0],
            buckets: buckets.map(|(cell, count)| (index(cell), *count)).collect(),
            overflow: self.counts[CELLS - 1],
            sum_ns: self.sum_ns.into(),
        }
    }

    /// Writes the cells between the first and the last that are not zero, and the sum. If they are about those of `similar`,
    /// the difference is written. The sum is expected to be `known_ns`. Returns the number of latencies.
    pub(super) fn write(&self, writer: &mut BitWriter, similar: Option<&Self>, known_ns: Option<u64>) -> u64 {
        writer.flag(self.is_empty());
        if self.is_empty() {
            return 0;
        }
        let (start, cells) = (self.touched.start.min(CELLS), self.cells());
        writer.number(start as u64, Self::FIRST_LENGTH);
        writer.number(cells.len() as u64, Self::RUN_LENGTH);
        let similar = similar.map(|similar| (similar, self.is_similar(similar)));
        let similar = similar.and_then(|(similar, is_similar)| {
            writer.flag(is_similar);
            is_similar.then_some(similar)
        });
        let (mut expected, mut longest, mut ios) = (COUNT_LENGTH, 0, 0_u64);
        for (&count, cell) in cells.iter().zip(start..) {
            let difference =
                similar.map_or(count, |similar| zigzag(count.wrapping_sub(similar.counts[cell])));
            expected = writer.number(difference, expected);
            longest = longest.max(sum_length(cell * Self::WIDTH, length(count)));
            ios = ios.wrapping_add(count);
        }
        match known_ns {
            Some(known) => writer.number(self.sum_ns.wrapping_sub(known), 0),
            None => writer.number(self.sum_ns, longest),
        };
        ios
    }

    /// Reads what was written. Returns the number of latencies.
    pub(super) fn read(
        &mut self,
        reader: &mut BitReader<'_>,
        similar: Option<&Self>,
        known_ns: Option<u64>,
    ) -> u64 {
        self.clear();
        if reader.flag() {
            return 0;
        }
        let start = (reader.value(Self::FIRST_LENGTH) as usize).min(CELLS);
        let end = start.saturating_add(reader.value(Self::RUN_LENGTH) as usize).min(CELLS);
        self.touched = start..end;
        let similar = similar.filter(|_| reader.flag());
        let (mut expected, mut longest, mut ios) = (COUNT_LENGTH, 0, 0_u64);
        for cell in start..end {
            let (difference, length_of) = reader.number(expected);
            expected = length_of;
            let count = similar
                .map_or(difference, |similar| similar.counts[cell].wrapping_add(from_zigzag(difference)));
            self.counts[cell] = count;
            longest = longest.max(sum_length(cell * Self::WIDTH, length(count)));
            ios = ios.wrapping_add(count);
        }
        self.sum_ns = match known_ns {
            Some(known) => reader.value(0).wrapping_add(known),
            None => reader.value(longest),
        };
        ios
    }

    /// Adds others.
    pub(super) fn add_all(&mut self, others: &Self) {
        let cells = self.counts.get_mut(others.touched.clone()).unwrap_or_default();
        for (sum, count) in cells.iter_mut().zip(others.cells()) {
            *sum = sum.wrapping_add(*count);
        }
        self.touched.start = self.touched.start.min(others.touched.start);
        self.touched.end = self.touched.end.max(others.touched.end);
        self.sum_ns = self.sum_ns.wrapping_add(others.sum_ns);
    }

    /// Takes others away. Below zero, counts wrap.
    pub(super) fn subtract(&mut self, others: &Self) {
        let cells = self.counts.get_mut(others.touched.clone()).unwrap_or_default();
        for (rest, count) in cells.iter_mut().zip(others.cells()) {
            *rest = rest.wrapping_sub(*count);
        }
        self.touched.start = self.touched.start.min(others.touched.start);
        self.touched.end = self.touched.end.max(others.touched.end);
        self.sum_ns = self.sum_ns.wrapping_sub(others.sum_ns);
    }

    /// Whether each count and the sum is at least that of others.
    pub(super) fn contains(&self, others: &Self) -> bool {
        let own = self.counts.get(others.touched.clone()).unwrap_or_default();
        self.sum_ns >= others.sum_ns && own.iter().zip(others.cells()).all(|(own, other)| own >= other)
    }

    fn cells(&self) -> &[u64] {
        self.counts.get(self.touched.clone()).unwrap_or_default()
    }

    /// Whether fewer than half of the latencies are in other cells.
    fn is_similar(&self, other: &Self) -> bool {
        // Without any count there are none.
        let others = other.counts.get(self.touched.clone()).unwrap_or_default();
        let (mut ios, mut differ) = (0_u64, 0_u64);
        for (one, other) in self.cells().iter().zip(others) {
            ios = ios.wrapping_add(*one);
            differ = differ.wrapping_add(one.abs_diff(*other));
        }
        differ < ios
    }
}

impl LatencyCells {
    /// The same latencies as those of a band or workload.
    pub(super) fn coarse(&self) -> BandCells {
        let mut coarse = BandCells { sum_ns: self.sum_ns, ..BandCells::default() };
        for (&count, cell) in self.cells().iter().zip(self.touched.start..).filter(|(count, _)| **count > 0) {
            coarse.add(cell.div_ceil(BandCells::WIDTH), count);
        }
        coarse
    }
}

/// Small numbers of small differences of either sign.
pub(super) const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

pub(super) const fn from_zigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// About how long the sum of the latencies in a bucket is, if their count has this length: a latency in the first ones has
/// 10 bits, and one more in every eighth bucket.
const fn sum_length(bucket: usize, count: u32) -> u32 {
    let sum = count + 10 + (bucket / 8) as u32;
    if count == 0 {
        0
    } else if sum < u64::BITS {
        sum
    } else {
        u64::BITS
    }
}

/// How long a count of bytes is expected to be: some kilobytes for each.
pub(super) const fn bytes_length(ios: u64) -> u32 {
    let length = length(ios);
    if length == 0 { 0 } else { length + 13 }
}

#[cfg(test)]
mod tests {
    use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};
    use proptest::{collection::btree_map, prelude::*};

    use super::LatencyCells;
    use crate::{
        histogram::Histogram,
        history::bits::{BitReader, BitWriter},
    };

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
        let buckets = btree_map(known, 1..1_u64 << 40, 0..40);
        (0..1_u64 << 40, buckets, 0..3_u64, any::<u64>()).prop_map(|(zero, buckets, overflow, sum_ns)| {
            Histogram { zero, buckets: buckets.into_iter().collect(), overflow, sum_ns: sum_ns.into() }
        })
    }

    #[test]
    fn counts_that_went_back() {
        let histogram = |buckets: &[(i32, u64)]| Histogram { buckets: buckets.to_vec(), ..Histogram::new() };
        let grown = |before: &[(i32, u64)], after: &[(i32, u64)]| {
            LatencyCells::default().add_growth(&histogram(before), &histogram(after))
        };
        assert!(
            grown(&[(3, 1)], &[(2, 1), (3, 1)]) && grown(&[], &[]) && grown(&[(3, 1)], &[(3, 2), (4, 1)])
        );
        assert!(
            !grown(&[(3, 2)], &[(3, 1)]) && !grown(&[(3, 1)], &[]) && !grown(&[(3, 1)], &[(2, 5), (4, 9)])
        );
    }

    #[test]
    fn a_time_without_a_count_is_written() {
        let mut writer = BitWriter::default();
        let total = LatencyCells { sum_ns: 7, ..LatencyCells::default() };
        total.write(&mut writer, Some(&LatencyCells::default()), None);
        let bytes = writer.take();
        let mut read = LatencyCells::default();
        read.read(&mut BitReader::new(&bytes), Some(&LatencyCells::default()), None);
        assert_eq!((read.sum_ns, read.is_empty()), (7, false));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn growth_is_written_and_read_back(
            before in any_histogram(), came in any_histogram(), known in proptest::option::of(any::<u64>()),
            other in any_histogram(), is_like_came in any::<bool>(),
        ) {
            let mut after = before.clone();
            after.add(&came);
            let mut cells = LatencyCells::default();
            prop_assert!(cells.add_growth(&before, &after));
            prop_assert_eq!(cells.histogram(), came.clone());
            let mut writer = BitWriter::default();
            let mut similar = LatencyCells::default();
            similar.add_growth(&Histogram::new(), if is_like_came { &after } else { &other });
            cells.write(&mut writer, Some(&similar), known);
            cells.write(&mut writer, None, known);
            let mut read = LatencyCells::default();
            let bytes = writer.take();
            let mut reader = BitReader::new(&bytes);
            prop_assert_eq!(read.read(&mut reader, Some(&similar), known), came.count());
            prop_assert_eq!(read.histogram(), came.clone());
            prop_assert_eq!(read.read(&mut reader, None, known), came.count());
            prop_assert_eq!(read.histogram(), came.clone());
            let mut sum = LatencyCells::default();
            sum.add_growth(&Histogram::new(), &before);
            sum.add_all(&read);
            prop_assert_eq!(sum.histogram(), Histogram { sum_ns: u128::from(after.sum_ns as u64), ..after });
            read.clear();
            prop_assert!(read.is_empty() && read.histogram() == Histogram::new());
        }
    }
}
