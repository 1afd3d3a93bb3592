//! Times as numbers.

use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds since the epoch, rounded to microseconds: every parser reads a decimal of so few digits back to the same number.
pub fn unix_seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as f64 / 1e6
}
