//! The counts of one histogram: as an array to add to, and packed in bits.

use std::ops::Range;

use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};
use biolat_model::histogram::Histogram;

use super::{
    bits::{BitReader, BitWriter, length},
    quads::{Quad, longest},
};

/// The empty range of quads, which any range can be joined to.
const NONE: Range<usize> = Range { start: usize::MAX, end: 0 };

/// Expected length of the first quad.
const COUNT_LENGTH: u32 = 1;

/// The number of quads for this many buckets and the overflow.
const fn quads_of(buckets: usize) -> usize {
    (buckets + 1).div_ceil(4)
}

/// Latencies of a device and op.
pub(super) type LatencyCells = Cells<{ quads_of(BUCKETS) }>;

/// Latencies of a size band or a workload: each cell is four buckets.
pub(super) type BandCells = Cells<{ quads_of(BUCKETS / 4) }>;

/// Latencies of an interval.
#[derive(Clone)]
pub(super) struct Cells<const QUADS: usize> {
    /// The zero bucket's count. It can be far higher than its neighbours'.
    zero: u64,
    /// The counts of all other buckets and of the overflow. Anything after the overflow stays zero.
    counts: [Quad; QUADS],
    /// Range of quads that may be non-zero.
    touched: Range<usize>,
    /// Sum in nanoseconds, modulo 2^64: that is 584 years of latency in one interval.
    pub(super) sum_ns: u64,
}

impl<const QUADS: usize> Default for Cells<QUADS> {
    fn default() -> Self {
        Self { zero: 0, counts: [[0; 4]; QUADS], touched: NONE, sum_ns: 0 }
    }
}

impl<const QUADS: usize> Cells<QUADS> {
    /// Schema 3 buckets per cell.
    const WIDTH: usize = BUCKETS.div_ceil(4 * QUADS - 1);
    const OVERFLOW: usize = BUCKETS / Self::WIDTH;
    /// Bits for a number of quads.
    const PLACE_BITS: u32 = QUADS.ilog2() + 1;

    /// The cell of a schema 3 bucket, if there is such a bucket.
    #[inline]
    fn cell(index: i32) -> Option<usize> {
        let bucket = index.wrapping_sub(FIRST_NATIVE_INDEX).cast_unsigned() as usize;
        (bucket < BUCKETS).then_some(bucket / Self::WIDTH)
    }

    /// Number of latencies.
    pub(super) fn count(&self) -> u64 {
        self.quads().iter().fold(self.zero, |sum, quad| sum.wrapping_add(sum_of(*quad)))
    }

    pub(super) fn clear(&mut self) {
        self.counts.get_mut(self.touched.clone()).unwrap_or_default().fill([0; 4]);
        self.touched = NONE;
        (self.zero, self.sum_ns) = (0, 0);
    }

    /// Must be called before these cells are set.
    fn touch(&mut self, cells: Range<usize>) {
        self.join(&(cells.start / 4..cells.end.div_ceil(4)));
    }

    fn join(&mut self, quads: &Range<usize>) {
        self.touched.start = self.touched.start.min(quads.start);
        self.touched.end = self.touched.end.max(quads.end);
    }

    /// Adds the growth since `before`. Returns false if any count went down, in which case the result is meaningless.
    pub(super) fn add_growth(&mut self, before: &Histogram, after: &Histogram) -> bool {
        let mut is_continued =
            after.sum_ns >= before.sum_ns && after.zero >= before.zero && after.overflow >= before.overflow;
        self.zero += after.zero.saturating_sub(before.zero);
        let counts = self.counts.as_flattened_mut();
        counts[Self::OVERFLOW] += after.overflow.saturating_sub(before.overflow);
        let mut grow = |cell: usize, had: u64, has: u64| {
            is_continued &= has >= had;
            counts[cell] = counts[cell].wrapping_add(has.wrapping_sub(had));
        };
        let (had, has) = (&before.buckets[..], &after.buckets[..]);
        let has_new = had.len() != has.len() || had.iter().zip(has).any(|(had, has)| had.0 != has.0);
        if has_new {
            let mut known = 0;
            for &(index, has) in has {
                let place = had.binary_search_by_key(&index, |bucket| bucket.0);
                known += usize::from(place.is_ok());
                if let Some(cell) = Self::cell(index) {
                    grow(cell, place.map_or(0, |place| had[place].1), has);
                }
            }
            is_continued &= known == had.len();
        } else {
            for (&(index, had), &(_, has)) in had.iter().zip(has) {
                if let Some(cell) = Self::cell(index) {
                    grow(cell, had, has);
                }
            }
        }
        self.touch_grown(after);
        self.sum_ns = self.sum_ns.wrapping_add(after.sum_ns.wrapping_sub(before.sum_ns) as u64);
        is_continued
    }

    /// Extends `touched` by the quads that a histogram made non-zero.
    fn touch_grown(&mut self, histogram: &Histogram) {
        let cell = |bucket: Option<&(i32, u64)>| bucket.and_then(|(index, _)| Self::cell(*index));
        let start = cell(histogram.buckets.first()).unwrap_or(Self::OVERFLOW);
        let last = Some(Self::OVERFLOW).filter(|_| histogram.overflow > 0);
        let last = last.or_else(|| cell(histogram.buckets.last())).unwrap_or(0);
        let quads = start / 4..last / 4 + 1;
        let is_used = |place: &usize| self.counts[*place] != [0; 4];
        if let Some(start) = quads.clone().find(is_used) {
            let last = quads.rev().find(is_used).unwrap_or(start);
            self.join(&(start..last + 1));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zero == 0 && self.touched.is_empty() && self.sum_ns == 0
    }

    /// Returns a histogram with indices in the schema of the cells.
    pub(super) fn histogram(&self) -> Histogram {
        let index =
            |cell: usize| (FIRST_NATIVE_INDEX + ((cell + 1) * Self::WIDTH) as i32 - 1) / Self::WIDTH as i32;
        let counts = self.counts.as_flattened();
        let buckets = (0..).zip(&counts[..Self::OVERFLOW]).filter(|(_, count)| **count > 0);
        Histogram {
            zero: self.zero,
            buckets: buckets.map(|(cell, count)| (index(cell), *count)).collect(),
            overflow: counts[Self::OVERFLOW],
            sum_ns: self.sum_ns.into(),
        }
    }

    /// Writes the zero bucket, the quads from the first to the last non-zero one, and the sum. If the quads are close to those of
    /// `similar`, only the differences are written. The sum is expected to be `known_ns`.
    pub(super) fn write(&self, writer: &mut BitWriter, similar: Option<&Self>, known_ns: Option<u64>) {
        writer.flag(self.is_empty());
        if self.is_empty() {
            return;
        }
        let (start, quads) = (self.touched.start.min(QUADS), self.quads());
        writer.bits(start as u64 | (quads.len() as u64) << Self::PLACE_BITS, 2 * Self::PLACE_BITS);
        let others = similar.map(|similar| similar.counts.get(self.touched.clone()).unwrap_or_default());
        let is_similar = others.is_some_and(|others| is_similar(quads, others));
        if similar.is_some() {
            writer.flag(is_similar);
        }
        let mut before = COUNT_LENGTH;
        let mut expected_ns = sum_length(0, length(self.zero));
        writer.number(self.zero, 0);
        if is_similar {
            for (&quad, &other) in quads.iter().zip(others.unwrap_or_default()) {
                let differences = differences(quad, other);
                let length = longest(differences);
                writer.quad(differences, length, before);
                before = length;
            }
            expected_ns = similar.map_or(0, |similar| length(similar.sum_ns));
        } else {
            for (&quad, place) in quads.iter().zip(start..) {
                let length = longest(quad);
                writer.quad(quad, length, before);
                before = length;
                expected_ns = expected_ns.max(sum_length(place * 4 * Self::WIDTH, length));
            }
        }
        match known_ns {
            Some(known) => writer.number(self.sum_ns.wrapping_sub(known), 0),
            None => writer.number(self.sum_ns, expected_ns),
        };
    }

    /// Reads what [`Self::write`] wrote.
    pub(super) fn read(&mut self, reader: &mut BitReader<'_>, similar: Option<&Self>, known_ns: Option<u64>) {
        self.clear();
        if reader.flag() {
            return;
        }
        let start = (reader.bits(Self::PLACE_BITS) as usize).min(QUADS);
        let end = (start + reader.bits(Self::PLACE_BITS) as usize).min(QUADS);
        self.touched = if start < end { start..end } else { NONE };
        let quads = &mut self.counts[start..end];
        let similar = similar.filter(|_| reader.flag());
        self.zero = reader.value(0);
        let mut before = COUNT_LENGTH;
        let mut expected_ns = sum_length(0, length(self.zero));
        if let Some(similar) = similar {
            for (quad, other) in quads.iter_mut().zip(&similar.counts[start..end]) {
                let (differences, length) = reader.quad(before);
                before = length;
                *quad = sums(differences, *other);
            }
            expected_ns = length(similar.sum_ns);
        } else {
            for (quad, place) in quads.iter_mut().zip(start..) {
                let (counts, length) = reader.quad(before);
                before = length;
                *quad = counts;
                expected_ns = expected_ns.max(sum_length(place * 4 * Self::WIDTH, length));
            }
        }
        self.sum_ns = match known_ns {
            Some(known) => reader.value(0).wrapping_add(known),
            None => reader.value(expected_ns),
        };
    }

    /// Adds the counts and the sum of `others`.
    pub(super) fn add_all(&mut self, others: &Self) {
        self.with_others(others, u64::wrapping_add);
    }

    /// Subtracts the counts and the sum of `others`, wrapping below zero.
    pub(super) fn subtract(&mut self, others: &Self) {
        self.with_others(others, u64::wrapping_sub);
    }

    #[inline]
    fn with_others(&mut self, others: &Self, sum: impl Fn(u64, u64) -> u64) {
        let quads = self.counts.get_mut(others.touched.clone()).unwrap_or_default();
        for ([a, b, c, d], other) in quads.iter_mut().zip(others.quads()) {
            (*a, *b) = (sum(*a, other[0]), sum(*b, other[1]));
            (*c, *d) = (sum(*c, other[2]), sum(*d, other[3]));
        }
        self.join(&others.touched);
        self.zero = sum(self.zero, others.zero);
        self.sum_ns = sum(self.sum_ns, others.sum_ns);
    }

    /// Whether every count and the sum are at least those of `others`.
    pub(super) fn contains(&self, others: &Self) -> bool {
        let own = self.counts.get(others.touched.clone()).unwrap_or_default().as_flattened();
        let others_counts = others.quads().as_flattened();
        self.sum_ns >= others.sum_ns
            && self.zero >= others.zero
            && own.iter().zip(others_counts).all(|(own, other)| own >= other)
    }

    fn quads(&self) -> &[Quad] {
        self.counts.get(self.touched.clone()).unwrap_or_default()
    }
}

impl LatencyCells {
    /// The same latencies at the resolution of a band or workload.
    pub(super) fn coarse(&self) -> BandCells {
        let mut coarse = BandCells { zero: self.zero, sum_ns: self.sum_ns, ..BandCells::default() };
        let counts = coarse.counts.as_flattened_mut().iter_mut();
        for (count, quad) in counts.skip(self.touched.start).zip(self.quads()) {
            *count = sum_of(*quad);
        }
        if !self.touched.is_empty() {
            coarse.touch(self.touched.clone());
        }
        coarse
    }
}

fn sum_of([a, b, c, d]: Quad) -> u64 {
    a.wrapping_add(b).wrapping_add(c).wrapping_add(d)
}

#[inline]
fn differences([a, b, c, d]: Quad, other: Quad) -> Quad {
    let difference = |count: u64, other: u64| zigzag(count.wrapping_sub(other));
    [difference(a, other[0]), difference(b, other[1]), difference(c, other[2]), difference(d, other[3])]
}

#[inline]
fn sums([a, b, c, d]: Quad, other: Quad) -> Quad {
    let sum = |difference: u64, other: u64| other.wrapping_add(from_zigzag(difference));
    [sum(a, other[0]), sum(b, other[1]), sum(c, other[2]), sum(d, other[3])]
}

/// Whether the differences are shorter than the quads themselves, judging by every second quad.
fn is_similar(quads: &[Quad], others: &[Quad]) -> bool {
    let (mut own, mut apart) = (0, 0);
    for (&quad, &other) in quads.iter().zip(others).step_by(2) {
        own += longest(quad);
        apart += longest(differences(quad, other));
    }
    apart < own
}

/// Maps signed differences to unsigned numbers, keeping small ones small.
pub(super) const fn zigzag(difference: u64) -> u64 {
    (difference << 1) ^ (difference.cast_signed() >> 63).cast_unsigned()
}

pub(super) const fn from_zigzag(number: u64) -> u64 {
    (number >> 1) ^ (number & 1).wrapping_neg()
}

/// Expected length of the sum of a bucket's latencies, given the length of their count: a latency in the first buckets has 10
/// bits, and one more for every eight buckets.
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

/// Expected length of a byte count: a few kilobytes per I/O.
pub(super) const fn bytes_length(ios: u64) -> u32 {
    let length = length(ios);
    if length == 0 { 0 } else { length + 13 }
}

#[cfg(test)]
mod tests {
    use biolat_common::bucket::{BUCKETS, FIRST_NATIVE_INDEX};
    use biolat_model::histogram::Histogram;
    use proptest::{collection::btree_map, prelude::*};

    use super::LatencyCells;
    use crate::bits::{BitReader, BitWriter};

    fn any_histogram() -> impl Strategy<Value = Histogram> {
        let known = FIRST_NATIVE_INDEX..FIRST_NATIVE_INDEX + BUCKETS as i32;
        let buckets = btree_map(known, 1..1_u64 << 40, 0..40);
        (0..1_u64 << 40, buckets, 0..3_u64, any::<u64>()).prop_map(|(zero, buckets, overflow, sum_ns)| {
            Histogram { zero, buckets: buckets.into_iter().collect(), overflow, sum_ns: sum_ns.into() }
        })
    }

    #[test]
    fn detects_decreasing_counts() {
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
    fn clear_removes_leftovers_of_decreasing_counts() {
        let high = Histogram { zero: 5, buckets: vec![(3, 7), (60, 9)], overflow: 5, sum_ns: 9 };
        let low = Histogram { zero: 1, buckets: vec![(3, 6)], overflow: 0, sum_ns: 3 };
        let mut cells = LatencyCells::default();
        assert!(!cells.add_growth(&high, &low));
        cells.clear();
        assert!(cells.add_growth(&Histogram::new(), &low));
        assert_eq!(cells.histogram(), low);
    }

    #[test]
    fn writes_a_sum_without_counts() {
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
        fn growth_survives_a_round_trip(
            before in any_histogram(), added in any_histogram(), known in proptest::option::of(any::<u64>()),
            other in any_histogram(), is_like_added in any::<bool>(),
        ) {
            let mut after = before.clone();
            after.add(&added);
            let mut cells = LatencyCells::default();
            prop_assert!(cells.add_growth(&before, &after));
            prop_assert_eq!((cells.histogram(), cells.count()), (added.clone(), added.count()));
            let mut writer = BitWriter::default();
            let mut similar = LatencyCells::default();
            similar.add_growth(&Histogram::new(), if is_like_added { &after } else { &other });
            cells.write(&mut writer, Some(&similar), known);
            cells.write(&mut writer, None, known);
            let mut read = LatencyCells::default();
            let bytes = writer.take();
            let mut reader = BitReader::new(&bytes);
            read.read(&mut reader, Some(&similar), known);
            prop_assert_eq!(read.histogram(), added.clone());
            read.read(&mut reader, None, known);
            prop_assert_eq!(read.histogram(), added.clone());
            let mut sum = LatencyCells::default();
            sum.add_growth(&Histogram::new(), &before);
            sum.add_all(&read);
            prop_assert_eq!(sum.histogram(), Histogram { sum_ns: u128::from(after.sum_ns as u64), ..after });
            read.clear();
            prop_assert!(read.is_empty() && read.histogram() == Histogram::new());
        }
    }
}
