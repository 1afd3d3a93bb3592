//! Sums of counts, which another host may have of any size: they saturate.

use std::collections::BTreeMap;

use crate::name::Name;

pub fn add(sum: &mut u64, count: u64) {
    *sum = sum.saturating_add(count);
}

pub fn sum<'a>(counts: impl IntoIterator<Item = &'a u64>) -> u64 {
    counts.into_iter().fold(0, |sum, count| sum.saturating_add(*count))
}

/// Adds counts with a name each.
pub fn add_named<'a>(sums: &mut BTreeMap<Name, u64>, counts: impl IntoIterator<Item = (&'a Name, &'a u64)>) {
    for (name, count) in counts {
        match sums.get_mut(name) {
            Some(sum) => add(sum, *count),
            None => _ = sums.insert(name.clone(), *count),
        }
    }
}
