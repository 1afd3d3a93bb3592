//! A time as seconds since the epoch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

use crate::text::time::unix_seconds;

pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(unix_seconds(*time))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let since_epoch =
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)?;
    UNIX_EPOCH.checked_add(since_epoch).ok_or_else(|| D::Error::custom("no such time"))
}
