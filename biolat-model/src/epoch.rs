//! Times as nanoseconds since the epoch, as stored for the next daemon.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the time since the epoch, or 0 for a time before it.
pub fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

pub fn time(nanoseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(nanoseconds)
}
