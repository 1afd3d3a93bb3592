//! Converts times to numbers.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns seconds since the epoch, rounded to microseconds: a decimal with so few digits survives formatting and parsing
/// unchanged.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as f64 / 1e6
}
