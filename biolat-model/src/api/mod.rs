//! The JSON of `/api/v1/snapshot`: a [`Snapshot`](crate::snapshot::Snapshot) for programs and for the page.
//! `biolat-daemon report` reads the same model, from this process or another: its text is harmless once it is read.
//!
//! Version 1: fields may be added, with `#[serde(default)]`, as older daemons do not send them; none is renamed, removed or
//! given another meaning. Counters only grow while `since` (of a
//! device) or `started` (of everything else) is the same. Clients use the difference of two snapshots.

mod convert;
mod history;
mod slow;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use convert::seconds;
pub use history::{ApiHistory, ApiInterval, ApiSummary, IN_FLIGHT};
pub use slow::{ApiSlowIo, ApiSlowLatency, ApiSlowLog};

use crate::{
    band_histogram::BandHistogram, device::MultipathPath, histogram::Histogram,
    size_histogram::SizeHistogram, snapshot::Inflight, text::sanitize,
};

/// The version of this model.
pub const VERSION: u32 = 1;

/// The result of one collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSnapshot {
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
    /// Time when the probe was attached, in seconds since the epoch.
    pub started: f64,
    /// Seconds between collections.
    pub interval: f64,
    /// The devices that are shown, by name.
    pub devices: Vec<ApiDevice>,
    /// What each workload has done, by cgroup; none with `--workloads off`, on kernels that do not tell the cgroup of an I/O, or
    /// if the daemon is older than this field.
    #[serde(default)]
    pub workloads: Option<Vec<ApiWorkload>>,
    /// Completions in no histogram, by reason, over all devices.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<String, u64>,
    /// Slow and failed I/Os that were not recorded, because there were too many.
    #[serde(default)]
    pub slow_dropped: u64,
    /// Cost of the daemon.
    pub daemon: Daemon,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiDevice {
    /// The kernel's name: `nvme0n1`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// As the drive reports it; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub model: String,
    /// As the drive reports it; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub serial: String,
    /// Revision of its firmware; empty if unknown, or if the daemon is older than this field.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub firmware: String,
    /// How it is attached: `pcie`, `sas`, `virtio`; empty if unknown, or if the daemon is older than this field.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub transport: String,
    /// The I/O scheduler in use; empty if unknown, or if the daemon is older than this field.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub scheduler: String,
    /// Whether it is a spinning drive.
    pub rotational: bool,
    /// The dm and md devices on top of it.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub holders: Vec<String>,
    /// As a path of a multipath device, if it is one.
    #[serde(default)]
    pub path: Option<MultipathPath>,
    /// Time when its counters were zero, in seconds since the epoch.
    pub since: f64,
    /// Available phases: of `admission`, `queue`, `device` and `total`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub phases: Vec<String>,
    /// Missing phases after admission, and the command that enables them; empty if none is missing.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lacks: String,
    /// By op.
    pub ops: Vec<Op>,
    /// Completions that the probe missed, by group of ops.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub unseen: BTreeMap<String, u64>,
    /// I/Os that have not completed; none if the daemon is older than this field.
    #[serde(default)]
    pub inflight: Option<Inflight>,
    /// Requests that have ended on each CPU, by its number; empty if the daemon is older than this field.
    #[serde(default)]
    pub completions: Vec<u64>,
}

/// One device and op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The kernel's name, in lower case: `read`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Failed completions by status, those that occurred.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub errors: BTreeMap<String, u64>,
    /// Times that a request went back to the queue after its dispatch.
    #[serde(default)]
    pub requeues: u64,
    /// From submission of a bio to the allocation of its request.
    #[serde(default)]
    pub admission: Histogram,
    /// From allocation of a request to its dispatch to the driver.
    pub queue: Histogram,
    /// From dispatch to completion.
    pub device: Histogram,
    /// Queue and device together.
    pub total: Histogram,
    /// By size; none with `--sizes off`, or if the daemon is older than this field.
    #[serde(default)]
    pub sizes: Option<ApiSizes>,
}

/// Requests of one device and op by size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSizes {
    /// How many.
    pub requests: SizeHistogram,
    /// Latencies by range of sizes, in ascending order: those that have requests.
    pub bands: Vec<ApiBand>,
}

/// Latencies of the requests of a range of sizes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiBand {
    /// The range: `le_4KiB` is up to 4 KiB, `le_16KiB` from there up to 16 KiB, `gt_1MiB` above 1 MiB.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub size: String,
    /// From dispatch to completion; from allocation if the kernel does not record the dispatch.
    pub device: BandHistogram,
}

/// A cgroup that the kernel charges with I/O.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiWorkload {
    /// Its path from the root of the hierarchy: `/` for the root cgroup, with the I/O of the kernel (journal, metadata, flushes,
    /// md) and of processes there, `other` for all cgroups that there was no room for.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub cgroup: String,
    /// A short name for people: `postgresql.service`, `namespace/pod/container`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// What it is: `root`, `service`, `container`, `pod`, `session` and others.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub kind: String,
    /// The innermost systemd unit; empty if there is none. The same is true of the fields below.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub unit: String,
    /// Of a pod.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub namespace: String,
    /// The pod's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub pod: String,
    /// The container's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub container: String,
    /// The pod's UID.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub pod_uid: String,
    /// The container's ID.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub container_id: String,
    /// Whether the cgroup has been removed.
    pub gone: bool,
    /// Time when its counters were zero, in seconds since the epoch.
    pub since: f64,
    /// By device and op.
    pub usage: Vec<ApiWorkloadUsage>,
}

/// What a workload has done on one device with one op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiWorkloadUsage {
    /// The device's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name of the op, in lower case: `read`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Time in the queue, of all requests together.
    pub queue_seconds: f64,
    /// Time in the device, of all requests together.
    pub device_seconds: f64,
    /// Queue and device together.
    pub total: BandHistogram,
}

/// Cost of the daemon.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// Collections.
    pub collections: u64,
    /// Seconds spent in them.
    pub collection_seconds: f64,
    /// Failed collections.
    pub failures: u64,
    /// Collections that took longer than the interval.
    pub overruns: u64,
    /// Series that the probe has room for.
    pub slots: u64,
    /// Kernel memory of the series, in bytes.
    pub map_bytes: u64,
    /// CPU time in seconds.
    pub cpu_seconds: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Runs of the probe, if the kernel measures them (`--probe-stats`).
    pub probe: Option<ApiProbe>,
}

/// Runs of the probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiProbe {
    /// How many.
    pub runs: u64,
    /// How long they took together.
    pub seconds: f64,
}
