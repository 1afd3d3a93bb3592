//! What is measured, and what the thread sends.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use biolat_model::{band_histogram::BandHistogram, device::Selection, name::Name};
use biolat_system::host::Host;

use super::{ios::ProcessIo, names::Process};

/// What to measure.
#[derive(Debug)]
pub struct Settings {
    pub host: Host,
    /// Devices to measure.
    pub selection: Selection,
    pub output: Output,
    /// Whether to filter system calls in the thread.
    pub seccomp: bool,
}

/// What the thread sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A window at this interval or, without one, a single window when it is stopped.
    Windows(Option<Duration>),
    /// Single I/Os.
    Ios,
}

/// An event from the thread.
#[derive(Debug)]
pub enum Event {
    Window(ProcessWindow),
    Ios(Vec<ProcessIo>),
    /// From now on, one of this many I/Os is sent.
    Sampling(u32),
    /// So many I/Os were not sent, because they completed faster than they could be read.
    Dropped(u64),
    /// A device is not measured.
    NotMeasured(String),
}

/// The I/O of all processes in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessWindow {
    pub ended: SystemTime,
    pub length: Duration,
    /// The models of the measured devices, by name; empty if unknown.
    pub models: BTreeMap<String, String>,
    pub usage: Vec<ProcessUsage>,
    /// Completions that are not in [`usage`](Self::usage), by reason.
    pub lost: BTreeMap<Name, u64>,
}

/// The I/O of a process with one op on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUsage {
    pub process: Process,
    pub device: String,
    pub op: String,
    pub bytes: u64,
    pub errors: u64,
    /// Device latencies; total latencies of I/Os without a dispatch timestamp.
    pub latency: BandHistogram,
}
