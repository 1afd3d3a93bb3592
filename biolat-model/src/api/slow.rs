//! The JSON of `/api/v1/slow`: the log of slow and failed I/Os. The parent module's compatibility rules apply.

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
    /// Version of the daemon that answered.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: Name,
    /// Host name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Time of the collection.
    #[serde(with = "unix_time")]
    pub taken: SystemTime,
    /// Time when the probe was attached. I/Os are numbered from 1 from then on.
    #[serde(with = "unix_time")]
    pub started: SystemTime,
    /// Time between collections.
    #[serde(with = "seconds")]
    pub interval: Duration,
    /// Minimum latency of a slow I/O, in seconds; `None` if no I/Os are recorded.
    pub threshold: Option<f64>,
    /// I/Os that were not recorded because there were too many.
    pub dropped: u64,
    /// Ordered by number, the newest last.
    pub ios: Arc<[SlowIo]>,
}

impl ApiSlowLog {
    /// Returns the slow log of a snapshot, taken by a daemon with this threshold.
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
