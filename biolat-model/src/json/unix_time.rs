//! A point in time as seconds since the epoch.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

use crate::text::time::unix_seconds;

pub(crate) fn serialize<S: Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(unix_seconds(*time))
}

/// Rounds to microseconds, the precision of the written value, because a double cannot represent the time exactly.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SystemTime, D::Error> {
    let since_epoch =
        Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(D::Error::custom)?;
    let rounded = since_epoch.saturating_add(Duration::from_nanos(500));
    let microseconds = Duration::new(rounded.as_secs(), rounded.subsec_micros() * 1000);
    UNIX_EPOCH.checked_add(microseconds).ok_or_else(|| D::Error::custom("no such time"))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use crate::snapshot::Snapshot;

    #[test]
    fn times_round_trip_to_the_microsecond() {
        for microseconds in [0, 1, 1_700_000_005_500_123, 1_700_000_005_999_999, 1 << 52] {
            let taken = UNIX_EPOCH + Duration::from_micros(microseconds);
            let json = serde_json::to_vec(&Snapshot { taken, ..Snapshot::default() }).unwrap();
            assert_eq!(serde_json::from_slice::<Snapshot>(&json).unwrap().taken, taken);
        }
    }
}
