//! Numbers, arrays and times as the state has them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

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
