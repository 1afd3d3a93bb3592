//! Saturating sums, because counts from another host can have any value.

use std::collections::BTreeMap;

pub fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

pub fn sum<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Adds named counts to named sums.
pub fn add_named<'a, N: Clone + Ord + 'a>(
    sums: &mut BTreeMap<N, u64>,
    counts: impl IntoIterator<Item = (&'a N, &'a u64)>,
) {
    for (name, count) in counts {
        match sums.get_mut(name) {
            Some(sum) => add(sum, *count),
            None => _ = sums.insert(name.clone(), *count),
        }
    }
}
