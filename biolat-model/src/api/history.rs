//! The JSON of `/api/v1/history`: the I/O in each interval of a time range. The parent module's compatibility rules apply.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::VERSION;
use crate::{
    period::{KeptFrom, Period},
    text::{sanitize, time::unix_seconds as seconds},
    version,
};

/// The I/O in a time range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiHistory {
    /// [`VERSION`].
    pub version: u32,
    /// Version of the daemon that answered.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: String,
    /// Host name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Seconds between collections.
    pub interval: f64,
    /// Start of the requested range, in seconds since the epoch.
    pub from: f64,
    /// End of the requested range.
    pub to: f64,
    /// Start of the recorded history, in seconds since the epoch; `None` if it is still empty.
    pub complete_from: Option<f64>,
    /// Time from which intervals are at most 10 s long.
    pub ten_seconds_from: Option<f64>,
    /// Time from which every collection has its own interval.
    pub collections_from: Option<f64>,
    /// Time from which intervals include sizes and workloads; `None` if neither is counted, or if all were dropped to save
    /// memory.
    #[serde(default)]
    pub breakdown_from: Option<f64>,
    /// In chronological order, although the clock may have been set back in between. This has to be the last field.
    #[serde(default)]
    pub intervals: Vec<Period>,
}

impl ApiHistory {
    /// Returns a history with no intervals yet.
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
