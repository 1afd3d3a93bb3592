//! Arrays of counts, most of which are zero, as a list of pairs: how many zeros come first, and a count.

/// The list of an array.
pub(in crate::collect) fn compress<T: Copy + Into<u64>>(counts: &[T]) -> Vec<u64> {
    /// Zeros are skipped in blocks: that takes few instructions for each.
    const BLOCK: usize = 32;
    let (mut list, mut zeros) = (Vec::new(), 0);
    for block in counts.chunks(BLOCK) {
        if block.iter().fold(0, |bits, &count| bits | count.into()) == 0 {
            zeros += block.len() as u64;
            continue;
        }
        for count in block.iter().map(|&count| count.into()) {
            if count == 0 {
                zeros += 1;
            } else {
                list.extend([zeros, count]);
                zeros = 0;
            }
        }
    }
    list
}

/// Fills an array of zeros from its list. `None` if the list has more than the array, or larger counts.
pub(in crate::collect) fn expand<T: TryFrom<u64>>(list: &[u64], counts: &mut [T]) -> Option<()> {
    let mut rest = counts.iter_mut();
    let (pairs, []) = list.as_chunks() else { return None };
    for &[zeros, count] in pairs {
        *rest.nth(usize::try_from(zeros).ok()?)? = T::try_from(count).ok()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{compress, expand};

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn arrays_are_what_they_were(counts in proptest::collection::vec(
            prop_oneof![9 => Just(0_u32), 1 => any::<u32>()], 0..400)
        ) {
            let mut found = vec![0_u32; counts.len()];
            prop_assert_eq!(expand(&compress(&counts), &mut found), Some(()));
            prop_assert_eq!(found, counts);
        }
    }

    #[test]
    fn lists_that_do_not_fit() {
        assert_eq!(compress(&[0_u32, 0, 5, 7, 0]), [2, 5, 0, 7]);
        for list in [&[5, 1][..], &[0, 1, 4, 1], &[0, 256], &[1], &[u64::MAX, 1]] {
            assert_eq!(expand(list, &mut [0_u8; 5]), None, "{list:?}");
        }
    }
}
