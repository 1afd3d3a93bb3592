//! The JSON of `/api/v1/history`: the I/O in each interval of a range. What the parent module says of versions applies to it.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::{
    period::{KeptFrom, Period},
    text::{sanitize, time::unix_seconds as seconds},
    version,
};

/// The I/O in a range of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiHistory {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's own version.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: String,
    /// The host's name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Seconds between collections.
    pub interval: f64,
    /// The range that was asked for, in seconds since the epoch.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// From when on there are intervals, in seconds since the epoch; none if there are none yet.
    pub complete_from: Option<f64>,
    /// From when on they are of 10 s at most.
    pub ten_seconds_from: Option<f64>,
    /// From when on they are of one collection each.
    pub collections_from: Option<f64>,
    /// From when on they have sizes and workloads; none if neither is counted, or memory was too short for any.
    #[serde(default)]
    pub breakdown_from: Option<f64>,
    /// The last field. In the order of time; the clock may have been set back in between.
    #[serde(default)]
    pub intervals: Vec<Period>,
}

impl ApiHistory {
    /// Without any interval.
    #[must_use]
    pub fn of(
        host: &str,
        interval: Duration,
        [from, to]: [SystemTime; 2],
        kept_from: Option<KeptFrom>,
    ) -> Self {
        Self {
            version: VERSION,
            biolat: version::VERSION.to_owned(),
            host: host.to_owned(),
            interval: interval.as_secs_f64(),
            from: seconds(from),
            to: seconds(to),
            complete_from: kept_from.map(|kept| seconds(kept.all)),
            ten_seconds_from: kept_from.map(|kept| seconds(kept.ten_seconds)),
            collections_from: kept_from.map(|kept| seconds(kept.collections)),
            breakdown_from: kept_from.and_then(|kept| kept.breakdown).map(seconds),
            intervals: Vec::new(),
        }
    }
}
