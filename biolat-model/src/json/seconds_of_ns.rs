//! Nanoseconds as seconds.

use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(ns: &u128, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / 1e9)
}

/// The cast saturates, and turns a negative number into 0.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    Ok((f64::deserialize(deserializer)? * 1e9).round() as u128)
}
