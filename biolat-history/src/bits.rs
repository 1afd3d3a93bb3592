//! Packs numbers into few bits. Each is written as the difference between its length and the expected one, in unary, followed by
//! the bits below its top one. The lengths of neighbours in a histogram hardly differ.

use std::sync::Arc;

/// Appends bits to a byte buffer, lowest first.
#[derive(Default)]
pub(super) struct BitWriter {
    /// Bytes before `end` are written. The rest are kept to reuse the memory.
    bytes: Vec<u8>,
    end: usize,
    word: u64,
    /// Number of bits used in `word`, below 64 between calls.
    used: u32,
}

/// Reads bits from bytes. Past the end it reads zeros, so a corrupt block yields arbitrary numbers, but reading always
/// terminates.
#[derive(Clone)]
pub(super) struct BitReader<'a> {
    bytes: &'a [u8],
    /// Number of bits read.
    place: usize,
}

/// A word from fewer than eight bytes, padded with zeros.
#[inline(never)]
fn last_word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Number of significant bits.
pub(super) const fn length(value: u64) -> u32 {
    u64::BITS - value.leading_zeros()
}

/// Decodes a length from the number of ones before the first zero.
const fn decode_length(ones: u32, expected: u32) -> u32 {
    let longer = (ones >> 1).cast_signed() ^ -(ones & 1).cast_signed();
    let length = if ones > 2 * expected { ones } else { expected.saturating_add_signed(longer) };
    if length < u64::BITS { length } else { u64::BITS }
}

/// Maximum number of bits written or read in one step.
const MAX_STEP: u32 = 56;

const fn below(count: u32) -> u64 {
    (1 << count) - 1
}

impl BitWriter {
    /// Appends at most [`MAX_STEP`] bits. The bits above `count` must be zero.
    #[inline(always)]
    pub(super) fn bits(&mut self, value: u64, count: u32) {
        self.word |= value << self.used;
        self.used += count;
        if self.used >= 64 {
            self.word(self.word);
            self.used -= 64;
            self.word = value >> (count - self.used);
        }
    }

    #[inline(always)]
    fn word(&mut self, word: u64) {
        if self.bytes.len() < self.end + 8 {
            self.grow();
        }
        if let Some(bytes) = self.bytes[self.end..].first_chunk_mut() {
            *bytes = word.to_le_bytes();
        }
        self.end += 8;
    }

    #[inline(never)]
    fn grow(&mut self) {
        self.bytes.resize(2 * self.end + 64, 0);
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.bits(flag.into(), 1);
    }

    /// Writes a number that is expected to have this many bits. Returns how many bits it has.
    #[inline]
    pub(super) fn number(&mut self, value: u64, expected: u32) -> u32 {
        let length = length(value);
        let longer = length.cast_signed() - expected.cast_signed();
        let around = ((longer << 1) ^ (longer >> 31)).cast_unsigned();
        // Lengths are never negative, so beyond twice the expected length, only longer ones are left to encode.
        let mut ones = if length > 2 * expected { length } else { around };
        let low = length.saturating_sub(1);
        if ones + 1 + low <= MAX_STEP {
            self.bits(below(ones) | (value & below(low)) << (ones + 1), ones + 1 + low);
            return length;
        }
        while ones >= 32 {
            self.bits(below(32), 32);
            ones -= 32;
        }
        self.bits(below(ones), ones + 1);
        self.bits(value & below(low.min(32)), low.min(32));
        if low > 32 {
            self.bits((value >> 32) & below(low - 32), low - 32);
        }
        length
    }

    /// Returns the bytes written so far, and starts over in the same memory.
    pub(super) fn take(&mut self) -> Arc<[u8]> {
        let end = self.end + self.used.div_ceil(8) as usize;
        self.word(self.word);
        let taken = Arc::from(&self.bytes[..end]);
        (self.end, self.word, self.used) = (0, 0, 0);
        taken
    }
}

impl<'a> BitReader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, place: 0 }
    }

    /// The next bits, at least [`MAX_STEP`].
    #[inline(always)]
    pub(super) fn peek(&self) -> u64 {
        let rest = self.bytes.get(self.place / 8..).unwrap_or_default();
        rest.first_chunk().map_or_else(|| last_word(rest), |word| u64::from_le_bytes(*word))
            >> (self.place % 8)
    }

    /// Skips bits that were peeked at.
    #[inline(always)]
    pub(super) const fn skip(&mut self, count: u32) {
        self.place += count as usize;
    }

    #[inline]
    pub(super) fn bits(&mut self, count: u32) -> u64 {
        let value = self.peek() & below(count);
        self.skip(count);
        value
    }

    pub(super) fn flag(&mut self) -> bool {
        self.bits(1) == 1
    }

    /// Reads a number that was expected to have this many bits. Returns the number and how many bits it has.
    #[inline]
    pub(super) fn number(&mut self, expected: u32) -> (u64, u32) {
        let word = self.peek();
        let ones = word.trailing_ones();
        let length = decode_length(ones, expected);
        let low = length.saturating_sub(1);
        if ones + 1 + low > MAX_STEP {
            return self.long_number(expected);
        }
        let value = word >> (ones + 1) & below(low);
        self.skip(ones + 1 + low);
        (value | u64::from(length > 0) << low, length)
    }

    fn long_number(&mut self, expected: u32) -> (u64, u32) {
        let mut ones = 0;
        loop {
            let some = self.peek().trailing_ones().min(32);
            self.skip(some);
            ones += some;
            if some < 32 {
                self.skip(1);
                break;
            }
            if ones > 4 * u64::BITS {
                return (0, 0);
            }
        }
        let length = decode_length(ones, expected);
        let Some(low) = length.checked_sub(1) else { return (0, 0) };
        let mut value = self.bits(low.min(32));
        if low > 32 {
            value |= self.bits(low - 32) << 32;
        }
        (value | 1 << low, length)
    }

    /// Reads a number that was expected to have this many bits.
    pub(super) fn value(&mut self, expected: u32) -> u64 {
        self.number(expected).0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::{collection::vec, prelude::*};

    use super::{BitReader, BitWriter, length};

    fn written(write: impl FnOnce(&mut BitWriter)) -> Arc<[u8]> {
        let mut writer = BitWriter::default();
        write(&mut writer);
        writer.take()
    }

    #[test]
    fn numbers_of_expected_length_are_short() {
        // One bit for the difference, and the bits below the top one.
        for (value, expected, bits) in
            [(0, 0, 1), (1, 1, 1), (1000, 10, 10), (1000, 11, 11), (1000, 9, 12), (1, 0, 2)]
        {
            let all = written(|writer| (0..800).for_each(|_| _ = writer.number(value, expected)));
            assert_eq!(all.len(), 100 * bits, "{value}");
        }
    }

    #[test]
    fn reading_endless_ones_terminates() {
        let mut reader = BitReader::new(&[0xff; 100]);
        assert_eq!(reader.number(3), (0, 0));
        assert_eq!(BitReader::new(&[]).number(0), (0, 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn numbers_survive_a_round_trip(numbers in vec((any::<u64>(), 0..=64_u32, 0..=64_u32, any::<bool>()), 0..200)) {
            let numbers: Vec<_> = numbers.into_iter().map(|(value, shift, expected, flag)| {
                (value.checked_shr(shift).unwrap_or(0), expected, flag)
            }).collect();
            let bytes = written(|writer| for &(value, expected, flag) in &numbers {
                writer.number(value, expected);
                writer.flag(flag);
            });
            let mut reader = BitReader::new(&bytes);
            for (value, expected, flag) in numbers {
                prop_assert_eq!(reader.number(expected), (value, length(value)));
                prop_assert_eq!(reader.flag(), flag);
            }
        }

        #[test]
        fn reads_arbitrary_bytes(bytes in vec(any::<u8>(), 0..100)) {
            let mut reader = BitReader::new(&bytes);
            (0..1000).for_each(|expected| _ = reader.number(expected % 65));
        }
    }
}
