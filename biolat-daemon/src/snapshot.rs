//! What one pass of the collector found: plain data, never changed once made. No aya in it, no Prometheus.

use std::time::{Duration, SystemTime};

use biolat_common::series::PHASES;

use crate::{
    device::{Device, diskstats::Group},
    histogram::Histogram,
};

/// Everything that is exposed.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When the pass was made.
    pub taken: SystemTime,
    /// When the probe was attached: every counter was zero then.
    pub started: SystemTime,
    /// The devices that are shown, by name.
    pub devices: Vec<DeviceView>,
    /// Completions in no histogram, by reason.
    pub lost: Vec<(&'static str, u64)>,
    /// How the collector fares.
    pub health: Health,
    /// Runs of the probe and the time in them, if the kernel was asked to count.
    pub probe: Option<ProbeRuns>,
    /// This process.
    pub process: Process,
}

/// One device.
#[derive(Clone, Debug)]
pub struct DeviceView {
    /// What it is.
    pub device: Device,
    /// When its counters were zero.
    pub since: SystemTime,
    /// Which phases are to be had, in the order of `Phase`.
    pub phases: [bool; PHASES],
    /// By op.
    pub series: Vec<SeriesView>,
    /// Completions in the kernel's books that the probe was not run for.
    pub unseen: Vec<(Group, u64)>,
}

/// One device and op.
#[derive(Clone, Debug)]
pub struct SeriesView {
    /// The kernel's name of the op, in lower case.
    pub op: String,
    /// Bytes moved.
    pub bytes: u64,
    /// In the order of `Phase`.
    pub histograms: [Histogram; PHASES],
    /// Failed completions by status, those that occurred.
    pub errors: Vec<(&'static str, u64)>,
}

/// How the collector fares.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// How long its passes took.
    pub durations: Histogram,
    /// Passes that failed.
    pub failures: u64,
    /// Passes that took longer than the interval.
    pub overruns: u64,
    /// Series that the probe has room for, used or not.
    pub slots: u64,
    /// Bytes that the kernel holds for them.
    pub map_bytes: u64,
}

/// Runs of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRuns {
    /// How many.
    pub count: u64,
    /// How long they took together.
    pub time: Duration,
}

/// This process, as `/proc/self` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Process {
    /// User and system time.
    pub cpu_seconds: f64,
    /// Resident memory.
    pub resident_bytes: u64,
    /// Virtual memory.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub open_fds: u64,
    /// How many there may be.
    pub max_fds: u64,
    /// Seconds since the epoch.
    pub start_time_seconds: f64,
}
