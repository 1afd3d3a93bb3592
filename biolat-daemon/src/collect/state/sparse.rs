//! Arrays of counts, most of which are zero, as pairs of varints: how many zeros come first, and a count.

use prost::encoding::decode_varint;

/// The bytes of an array.
pub(in crate::collect) fn compress<T: Copy + Into<u64>>(counts: &[T]) -> Vec<u8> {
    /// Zeros are skipped in blocks: that takes few instructions for each.
    const BLOCK: usize = 32;
    let (mut bytes, mut zeros) = (Vec::with_capacity(2 * BLOCK), 0);
    for block in counts.chunks(BLOCK) {
        if block.iter().fold(0, |bits, &count| bits | count.into()) == 0 {
            zeros += block.len() as u64;
            continue;
        }
        for count in block.iter().map(|&count| count.into()) {
            if count == 0 {
                zeros += 1;
            } else {
                push_varint(zeros, &mut bytes);
                push_varint(count, &mut bytes);
                zeros = 0;
            }
        }
    }
    bytes
}

/// Protobuf's writes each byte by a function of its own.
fn push_varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Fills an array of zeros from its bytes. `None` if they have more than the array, or larger counts.
pub(in crate::collect) fn expand<T: TryFrom<u64>>(mut bytes: &[u8], counts: &mut [T]) -> Option<()> {
    let mut rest = counts.iter_mut();
    while !bytes.is_empty() {
        let zeros = decode_varint(&mut bytes).ok()?;
        let count = decode_varint(&mut bytes).ok()?;
        *rest.nth(usize::try_from(zeros).ok()?)? = T::try_from(count).ok()?;
    }
    Some(())
}

/// The bytes of wide numbers: of their low and high halves.
pub(in crate::collect) fn compress_wide<const N: usize>(numbers: &[u128; N]) -> Vec<u8> {
    compress(numbers.map(|number| [number as u64, (number >> 64) as u64]).as_flattened())
}

/// This many wide numbers from their bytes.
pub(in crate::collect) fn expanded_wide<const N: usize>(bytes: &[u8]) -> Option<[u128; N]> {
    let mut halves = [[0_u64; 2]; N];
    expand(bytes, halves.as_flattened_mut())?;
    Some(halves.map(|[low, high]| u128::from(low) | u128::from(high) << 64))
}

/// An array of this many counts from its bytes.
pub(in crate::collect) fn expanded<T: TryFrom<u64> + Copy + Default, const N: usize>(
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
        fn arrays_are_what_they_were(counts in proptest::collection::vec(
            prop_oneof![9 => Just(0_u64), 1 => any::<u64>()], 0..400)
        ) {
            let mut found = vec![0_u64; counts.len()];
            prop_assert_eq!(expand(&compress(&counts), &mut found), Some(()));
            prop_assert_eq!(found, counts);
        }

        #[test]
        fn wide_numbers_are_what_they_were(numbers: [u128; 3]) {
            prop_assert_eq!(expanded_wide(&compress_wide(&numbers)), Some(numbers));
        }

        #[test]
        fn any_bytes_are_an_array_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = expanded::<u32, 100>(&bytes);
        }
    }

    #[test]
    fn bytes_that_do_not_fit() {
        assert_eq!(compress(&[0_u32, 0, 5, 700, 0]), [2, 5, 0, 0xbc, 5]);
        assert_eq!(expanded(&[2, 5, 0, 7]), Some([0_u8, 0, 5, 7, 0]));
        for bytes in [&[5, 1][..], &[0, 1, 4, 1], &[0, 0x80, 2], &[1], &[0, 0x80], &[0xff; 12]] {
            assert_eq!(expanded::<u8, 5>(bytes), None, "{bytes:?}");
        }
    }
}
