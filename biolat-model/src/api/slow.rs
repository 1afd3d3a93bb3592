//! The JSON of `/api/v1/slow`: the log of slow and failed I/Os. What the parent module says of versions applies to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{VERSION, seconds};
use crate::version;
use crate::{
    snapshot::{SlowIo, Snapshot},
    text::sanitize,
};

/// The latest slow and failed I/Os.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSlowLog {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's own version.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: String,
    /// The host's name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Time of the collection, in seconds since the epoch.
    pub taken: f64,
    /// Time when the probe was attached, in seconds since the epoch: the number of the first I/O after it is 1.
    pub started: f64,
    /// Seconds between collections.
    pub interval: f64,
    /// From how many seconds on an I/O is slow; none: no I/O is recorded.
    pub threshold: Option<f64>,
    /// I/Os that were not recorded, because there were too many.
    pub dropped: u64,
    /// By number, the newest last.
    pub ios: Vec<ApiSlowIo>,
}

/// An I/O that was slow or failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSlowIo {
    /// Grows by one from I/O to I/O, over all devices.
    pub number: u64,
    /// Time of its completion, in seconds since the epoch.
    pub completed: f64,
    /// The device's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name, in lower case: `read`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// The kernel's block status: `ok` if it did not fail.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub status: String,
    /// Its latency.
    pub latency: ApiSlowLatency,
    /// The CPU on which it completed.
    pub cpu: u32,
    /// The cgroup that the kernel charges, by its path; none if it is unknown.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub workload: Option<String>,
}

/// The parts of a latency in seconds, where the kernel has the timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiSlowLatency {
    /// From submission to allocation of the request.
    pub admission: Option<f64>,
    /// From allocation to dispatch.
    pub queue: Option<f64>,
    /// From dispatch to completion.
    pub device: Option<f64>,
    /// Queue and device together.
    pub total: Option<f64>,
}

impl ApiSlowLog {
    /// The log of a snapshot, of a host of this name and a daemon that makes one each interval, with this threshold.
    #[must_use]
    pub fn of(snapshot: &Snapshot, host: &str, interval: Duration, threshold: Option<Duration>) -> Self {
        Self {
            version: VERSION,
            biolat: version::VERSION.to_owned(),
            host: host.to_owned(),
            taken: seconds(snapshot.taken),
            started: seconds(snapshot.started),
            interval: interval.as_secs_f64(),
            threshold: threshold.map(|threshold| threshold.as_secs_f64()),
            dropped: snapshot.slow.dropped,
            ios: snapshot.slow.ios.iter().map(ApiSlowIo::of).collect(),
        }
    }
}

impl ApiSlowIo {
    pub(super) fn of(io: &SlowIo) -> Self {
        let [admission, queue, device, total] =
            io.latencies.map(|latency| latency.map(|latency| latency.as_secs_f64()));
        Self {
            number: io.number,
            completed: seconds(io.completed),
            device: io.device.clone(),
            op: io.op.clone(),
            sector: io.sector,
            bytes: io.bytes.into(),
            status: io.status.to_owned(),
            latency: ApiSlowLatency { admission, queue, device, total },
            cpu: io.cpu,
            workload: Some(io.cgroup.clone()).filter(|cgroup| !cgroup.is_empty()),
        }
    }
}
