//! An optional latency per phase, as seconds in fields named after the phases.

use std::time::Duration;

use biolat_common::series::PHASES;
use serde::{Deserializer, Serializer, de::Error as _};

use super::per_phase;

pub(crate) fn serialize<S: Serializer>(
    latencies: &[Option<Duration>; PHASES],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    per_phase::serialize(&latencies.map(|latency| latency.map(|latency| latency.as_secs_f64())), serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<[Option<Duration>; PHASES], D::Error> {
    let seconds: [Option<f64>; PHASES] = per_phase::deserialize(deserializer)?;
    let mut latencies = [None; PHASES];
    for (latency, seconds) in latencies.iter_mut().zip(seconds) {
        *latency = seconds.map(Duration::try_from_secs_f64).transpose().map_err(D::Error::custom)?;
    }
    Ok(latencies)
}
