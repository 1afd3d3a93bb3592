//! What `/api/v1/snapshot` serves: a [`Snapshot`](crate::snapshot::Snapshot) as JSON, for programs and for the page. The same
//! model is read back by `biolat-daemon report --from`, so that there is one reader of figures, wherever they come from.
//!
//! Version 1: fields may be added, none is renamed, removed or given another meaning. Counters only grow while `since`
//! (of a device) and `started` (of everything else) stay the same. Who reads it takes differences between two of them.

mod convert;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use convert::seconds;

use crate::histogram::Histogram;

/// The version of this model.
pub const VERSION: u32 = 1;

/// Everything that one pass found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's own version.
    pub biolat: String,
    /// The host's name, as far as the daemon can tell.
    pub host: String,
    /// When the pass was made, in seconds since the epoch.
    pub taken: f64,
    /// When the probe was attached, likewise.
    pub started: f64,
    /// Seconds between passes.
    pub interval: f64,
    /// The devices that are shown, by name.
    pub devices: Vec<Device>,
    /// Completions in no histogram, by reason, over all devices.
    pub lost: BTreeMap<String, u64>,
    /// What the daemon itself takes.
    pub daemon: Daemon,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Device {
    /// The kernel's name: `nvme0n1`.
    pub name: String,
    /// The drive's own words; empty if it has none.
    pub model: String,
    /// Likewise.
    pub serial: String,
    /// Whether it spins.
    pub rotational: bool,
    /// What is stacked on it: dm and md devices.
    pub holders: Vec<String>,
    /// When its counters were zero, in seconds since the epoch.
    pub since: f64,
    /// Phases that are to be had: of `queue`, `device` and `total`.
    pub phases: Vec<String>,
    /// What is missing and the command that turns it on; empty if nothing is.
    pub lacks: String,
    /// By op.
    pub ops: Vec<Op>,
    /// Completions in the kernel's books that the probe was not run for, by group of ops.
    pub unseen: BTreeMap<String, u64>,
}

/// One device and op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Op {
    /// The kernel's name, in lower case: `read`.
    pub op: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Failed completions by status, those that occurred.
    pub errors: BTreeMap<String, u64>,
    /// From the making of a request to its hand-over to the driver.
    pub queue: Histogram,
    /// From the hand-over to completion.
    pub device: Histogram,
    /// Both.
    pub total: Histogram,
}

/// What the daemon takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Daemon {
    /// Passes that were made.
    pub passes: u64,
    /// Seconds in them.
    pub pass_seconds: f64,
    /// Those that failed.
    pub failures: u64,
    /// Those that took longer than the interval.
    pub overruns: u64,
    /// Series that the probe has room for.
    pub slots: u64,
    /// Bytes that the kernel holds for them.
    pub map_bytes: u64,
    /// Processor time.
    pub cpu_seconds: f64,
    /// Memory.
    pub resident_bytes: u64,
    /// Runs of the probe, if the kernel was asked to count them.
    pub probe: Option<Probe>,
}

/// Runs of the probe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// How many.
    pub runs: u64,
    /// How long they took together.
    pub seconds: f64,
}
