//! The JSON of `/api/v1/slow`: the log of slow and failed I/Os. What the parent module says of versions applies to it.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};

use crate::{
    json::{seconds, unix_time},
    name::Name,
    snapshot::{SlowIo, Snapshot},
    text::sanitize,
};

/// The latest slow and failed I/Os.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSlowLog {
    /// [`super::VERSION`].
    pub version: u32,
    /// The daemon's own version.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: Name,
    /// The host's name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Time of the collection.
    #[serde(with = "unix_time")]
    pub taken: SystemTime,
    /// Time when the probe was attached: the number of the first I/O after it is 1.
    #[serde(with = "unix_time")]
    pub started: SystemTime,
    /// Between collections.
    #[serde(with = "seconds")]
    pub interval: Duration,
    /// From how many seconds on an I/O is slow; none: no I/O is recorded.
    pub threshold: Option<f64>,
    /// I/Os that were not recorded, because there were too many.
    pub dropped: u64,
    /// By number, the newest last.
    pub ios: Arc<[SlowIo]>,
}

impl ApiSlowLog {
    /// The log of a snapshot, of a daemon with this threshold.
    #[must_use]
    pub fn of(snapshot: &Snapshot, threshold: Option<Duration>) -> Self {
        Self {
            version: snapshot.version,
            biolat: snapshot.biolat.clone(),
            host: snapshot.host.clone(),
            interval: snapshot.interval,
            taken: snapshot.taken,
            started: snapshot.started,
            threshold: threshold.map(|threshold| threshold.as_secs_f64()),
            dropped: snapshot.slow_dropped,
            ios: Arc::clone(&snapshot.slow),
        }
    }
}
