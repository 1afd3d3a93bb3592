//! Encodes arrays of counts, most of which are zero, in blocks of eight. For each block that is not all zeros: the number of zero
//! blocks before it as a varint, a bit mask of its nonzero counts, and the nonzero counts as varints.

use prost::{bytes::Buf as _, encoding::decode_varint};

const BLOCK: usize = 8;

/// Maximum length of a varint.
const MAX_BYTES: usize = 10;

/// Buffers one encoded block, because appending a whole block at a time takes few instructions.
struct Encoder {
    bytes: [u8; MAX_BYTES + 1 + BLOCK * MAX_BYTES],
    used: usize,
}

impl Encoder {
    fn byte(&mut self, byte: u8) {
        self.bytes[self.used] = byte;
        self.used += 1;
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.byte(number as u8 | 0x80);
            number >>= 7;
        }
        self.byte(number as u8);
    }
}

/// Encodes an array.
pub(in crate::collector) fn compress<T: Copy + Into<u64>>(counts: &[T]) -> Vec<u8> {
    let (mut bytes, mut zeros) = (Vec::with_capacity(counts.len().min(512)), 0);
    let mut encoder = Encoder { bytes: [0; _], used: 0 };
    for block in counts.chunks(BLOCK) {
        if block.iter().fold(0, |bits, &count| bits | count.into()) == 0 {
            zeros += 1;
            continue;
        }
        encoder.used = 0;
        encoder.varint(zeros);
        let bits = encoder.used;
        encoder.byte(0);
        for (place, count) in block.iter().map(|&count| count.into()).enumerate() {
            if count != 0 {
                encoder.bytes[bits] |= 1 << place;
                encoder.varint(count);
            }
        }
        bytes.extend_from_slice(&encoder.bytes[..encoder.used]);
        zeros = 0;
    }
    bytes
}

/// Fills an array of zeros from its encoding. `None` if the encoding has more elements than the array, or a count that does not
/// fit its type.
pub(in crate::collector) fn expand<T: TryFrom<u64>>(mut bytes: &[u8], counts: &mut [T]) -> Option<()> {
    let mut blocks = counts.chunks_mut(BLOCK);
    while !bytes.is_empty() {
        let zeros = decode_varint(&mut bytes).ok()?;
        let block = blocks.nth(usize::try_from(zeros).ok()?)?;
        let bits = bytes.try_get_u8().ok()?;
        for place in (0..BLOCK).filter(|place| bits >> place & 1 != 0) {
            *block.get_mut(place)? = T::try_from(decode_varint(&mut bytes).ok()?).ok()?;
        }
    }
    Some(())
}

/// Encodes wide numbers as their low and high halves.
pub(in crate::collector) fn compress_wide<const N: usize>(numbers: &[u128; N]) -> Vec<u8> {
    compress(numbers.map(|number| [number as u64, (number >> 64) as u64]).as_flattened())
}

/// Decodes this many wide numbers.
pub(in crate::collector) fn expanded_wide<const N: usize>(bytes: &[u8]) -> Option<[u128; N]> {
    let mut halves = [[0_u64; 2]; N];
    expand(bytes, halves.as_flattened_mut())?;
    Some(halves.map(|[low, high]| u128::from(low) | u128::from(high) << 64))
}

/// Decodes an array of this many counts.
pub(in crate::collector) fn expanded<T: TryFrom<u64> + Copy + Default, const N: usize>(
    bytes: &[u8],
) -> Option<[T; N]> {
    let mut counts = [T::default(); N];
    expand(bytes, &mut counts)?;
    Some(counts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{compress, compress_wide, expand, expanded, expanded_wide};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arrays_round_trip(counts in proptest::collection::vec(
            prop_oneof![9 => Just(0_u64), 1 => any::<u64>()], 0..400)
        ) {
            let mut found = vec![0_u64; counts.len()];
            prop_assert_eq!(expand(&compress(&counts), &mut found), Some(()));
            prop_assert_eq!(found, counts);
        }

        #[test]
        fn wide_numbers_round_trip(numbers: [u128; 3]) {
            prop_assert_eq!(expanded_wide(&compress_wide(&numbers)), Some(numbers));
        }

        #[test]
        fn decodes_any_bytes_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = expanded::<u32, 100>(&bytes);
        }
    }

    #[test]
    fn rejects_bytes_that_do_not_fit() {
        let mut counts = [0_u32; 20];
        (counts[10], counts[11], counts[19]) = (5, 700, 1);
        let bytes = [1, 0b1100, 5, 0xbc, 5, 0, 0b1000, 1];
        assert_eq!(compress(&counts), bytes);
        assert_eq!(expanded(&bytes), Some(counts));
        assert_eq!(expanded(&[0, 0b1100, 5, 7]), Some([0_u8, 0, 5, 7, 0]));
        for bytes in
            [&[1, 1, 1][..], &[0, 0b10_0000, 1], &[0, 1, 0x80, 2], &[0], &[0, 1], &[0, 1, 0x80], &[0xff; 12]]
        {
            assert_eq!(expanded::<u8, 5>(bytes), None, "{bytes:?}");
        }
    }
}
