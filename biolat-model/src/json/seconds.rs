//! A duration as seconds.

use std::time::Duration;

use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

pub(crate) fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::snapshot::Inflight;

    #[test]
    fn rejects_invalid_durations() {
        let read = |seconds: &str| {
            let json = format!(r#"{{"read":1,"write":2,"oldest_seconds":{seconds},"exact":true}}"#);
            serde_json::from_str::<Inflight>(&json).map(|inflight| inflight.oldest)
        };
        assert_eq!(read("16.25").unwrap(), Duration::from_millis(16_250));
        for wrong in ["-1", "1e300", "null", "\"1\""] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
