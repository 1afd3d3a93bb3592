//! Numbers, arrays and times as the state has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Low and high halves of each number.
pub(in crate::collect) fn halves(numbers: &[u128]) -> Vec<u64> {
    numbers.iter().flat_map(|&number| [number as u64, (number >> 64) as u64]).collect()
}

/// The numbers of which these are the halves. `None` if there are not so many.
pub(in crate::collect) fn whole<const N: usize>(halves: &[u64]) -> Option<[u128; N]> {
    let (pairs, []) = halves.as_chunks::<2>() else { return None };
    let numbers: Vec<_> = pairs.iter().map(|&[low, high]| u128::from(low) | u128::from(high) << 64).collect();
    numbers.try_into().ok()
}

/// As many numbers as the array has. `None` if there are not so many.
pub(in crate::collect) fn array<T: Copy, const N: usize>(numbers: &[T]) -> Option<[T; N]> {
    numbers.try_into().ok()
}

/// A time of day as a number.
pub(in crate::collect) fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub(in crate::collect) fn time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}
