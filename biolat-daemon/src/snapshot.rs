//! What one collection found: plain data, immutable. It depends neither on aya nor on Prometheus.

use std::time::{Duration, Instant, SystemTime};

use biolat_common::series::PHASES;

use crate::{
    device::{Device, diskstats::Group},
    histogram::Histogram,
};

/// Everything that is exposed of one collection.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was collected.
    pub taken: SystemTime,
    /// When the probe was attached: every counter was zero then.
    pub started: SystemTime,
    /// The devices that are shown, by name.
    pub devices: Vec<DeviceView>,
    /// Completions in no histogram, by reason.
    pub lost: Vec<(&'static str, u64)>,
    /// Statistics of the collector.
    pub health: Health,
    /// Runs of the probe and their time, if the kernel measures them.
    pub probe: Option<ProbeRuns>,
    /// This process; none without `/proc`.
    pub process: Option<Process>,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceView {
    pub device: Device,
    /// When its counters were zero.
    pub since: SystemTime,
    /// Which phases are available, in the order of `Phase`.
    pub phases: [bool; PHASES],
    /// By op.
    pub series: Vec<SeriesView>,
    /// Completions in the disk statistics that the probe missed.
    pub unseen: Vec<(Group, u64)>,
}

/// One device and op.
#[derive(Clone, Debug, Default)]
pub struct SeriesView {
    /// The kernel's name of the op, in lower case.
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// In the order of `Phase`.
    pub histograms: [Histogram; PHASES],
    /// Failed completions by status, those that occurred.
    pub errors: Vec<(&'static str, u64)>,
}

/// Statistics of the collector.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// How long collections took.
    pub durations: Histogram,
    /// When the last collection succeeded.
    pub last_success: Option<Instant>,
    /// Collections that failed.
    pub failures: u64,
    /// Collections that took longer than the interval.
    pub overruns: u64,
    /// Slots for series in the probe's maps, used or not.
    pub slots: u64,
    /// Kernel memory of these slots.
    pub map_bytes: u64,
}

/// The kernel's statistics of the probe's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRuns {
    pub count: u64,
    /// Total time of all runs.
    pub time: Duration,
}

/// This process, as in `/proc/self`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// User and system CPU time.
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub open_fds: u64,
    /// Limit of open file descriptors.
    pub max_fds: u64,
    /// Seconds since the epoch.
    pub start_time_seconds: f64,
}
