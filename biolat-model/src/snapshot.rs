//! What one collection found: plain data, immutable. It depends neither on aya nor on Prometheus.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use biolat_common::series::{PHASES, Phase};
use serde::{Deserialize, Serialize};

use crate::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::{Device, Group},
    histogram::Histogram,
    seconds,
    size_histogram::SizeHistogram,
};

/// A device whose oldest I/O is older hangs, wherever people read it.
pub const HUNG: Duration = Duration::from_secs(10);

/// Everything that is exposed of one collection.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it was collected.
    pub taken: SystemTime,
    /// When the probe was attached: every counter was zero then.
    pub started: SystemTime,
    /// The devices that are shown, by name.
    pub devices: Vec<DeviceView>,
    /// What each workload has done, by cgroup; none with `--workloads off`, and on kernels without cgroups of I/Os.
    pub workloads: Option<Vec<WorkloadView>>,
    /// Completions in no histogram, by reason.
    pub lost: Vec<(&'static str, u64)>,
    /// The latest I/Os that were slow or failed.
    pub slow: SlowLog,
    /// Statistics of the collector.
    pub health: Health,
    /// Runs of the probe and their time, if the kernel measures them.
    pub probe: Option<ProbeRuns>,
    /// This process; none without `/proc`.
    pub process: Option<Process>,
    /// The number of CPUs that are online; none if sysfs cannot be read.
    pub online_cpus: Option<usize>,
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
    /// I/Os that it has not completed yet.
    pub inflight: Inflight,
    /// The CPUs that its completions ran on.
    pub spread: CpuSpread,
}

/// How the completions of a device spread over the CPUs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuSpread {
    /// Requests that have ended on each CPU.
    pub completions: Vec<u64>,
    /// Of the last few minutes: the number of CPUs that would have as many each, 1 / the sum of the squared shares. None
    /// without completions.
    pub effective_cpus: Option<f64>,
    /// Of the last few minutes: the share of the CPU with most of them.
    pub largest_share: Option<f64>,
    /// Of the last few minutes: the share that ran on another NUMA node than the device's; none if that is unknown.
    pub off_node_share: Option<f64>,
}

impl DeviceView {
    /// The latencies that are missing from allocation on, and how to have them recorded; `None` if none is missing.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let is_missing =
            Phase::ALL.iter().any(|&phase| phase != Phase::Admission && !self.phases[phase as usize]);
        self.device.hint().filter(|_| is_missing)
    }
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
    /// Times that a request went back to the queue after its dispatch.
    pub requeues: u64,
    /// By size; none with `--sizes off`.
    pub sizes: Option<SizesView>,
    /// I/Os of workloads that are not shown any more.
    pub ended_workload_ios: u64,
}

/// Requests of one device and op by size.
#[derive(Clone, Debug, Default)]
pub struct SizesView {
    /// How many.
    pub requests: SizeHistogram,
    /// Device latencies by band: the name of each band that has requests, in ascending order. Of requests without a dispatch
    /// timestamp, the total latency.
    pub bands: Vec<(&'static str, BandHistogram)>,
}

/// A cgroup that the kernel charges with I/O.
#[derive(Clone, Debug)]
pub struct WorkloadView {
    /// Its path from the root of the hierarchy: `/` for the kernel itself, `other` for all that there was no room for.
    pub cgroup: String,
    /// Who it is, by its path.
    pub identity: Identity,
    /// When its counters were zero.
    pub since: SystemTime,
    /// Whether the cgroup has been removed.
    pub is_gone: bool,
    /// By device and op. It may have devices that are not shown any more.
    pub usage: Vec<WorkloadUsage>,
}

/// What a workload has done on one device with one op.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkloadUsage {
    /// The device's name.
    pub device: String,
    /// The kernel's name of the op, in lower case.
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Nanoseconds in the queue, of requests with a dispatch timestamp.
    pub queue_ns: u128,
    /// Nanoseconds in the device, of requests with a dispatch timestamp.
    pub device_ns: u128,
    /// Total latency.
    pub latency: BandHistogram,
}

impl WorkloadUsage {
    /// Time in the queue.
    #[must_use]
    pub fn queue_seconds(&self) -> f64 {
        self.queue_ns as f64 / 1e9
    }

    /// Time in the device.
    #[must_use]
    pub fn device_seconds(&self) -> f64 {
        self.device_ns as f64 / 1e9
    }
}

/// I/Os that a device has not completed yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inflight {
    /// Reads that were dispatched to the driver.
    #[serde(rename = "read")]
    pub reads: u64,
    /// Writes and all other ops that were dispatched to the driver.
    #[serde(rename = "write")]
    pub writes: u64,
    /// The age of the oldest I/O, in the scheduler or the driver; zero if there is none.
    #[serde(rename = "oldest_seconds", with = "seconds")]
    pub oldest: Duration,
    /// Whether `oldest` is exact. Otherwise it is a lower bound: for that long there have been I/Os in flight and none has
    /// completed.
    #[serde(rename = "exact")]
    pub is_exact: bool,
}

impl Inflight {
    /// I/Os that were dispatched to the driver.
    #[must_use]
    pub fn dispatched(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// Whether there is no I/O in flight, in the scheduler or the driver.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.dispatched() == 0 && self.oldest.is_zero()
    }

    /// Whether the oldest I/O has taken so long that the device hangs.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.oldest > HUNG
    }
}

/// The latest I/Os that were slow or failed.
#[derive(Clone, Debug, Default)]
pub struct SlowLog {
    /// In the order of their numbers, which is that of completion among those that were read together; the newest last.
    pub ios: Arc<[SlowIo]>,
    /// I/Os that were not recorded, because there were too many.
    pub dropped: u64,
}

/// An I/O that was slow or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowIo {
    /// Grows by one from record to record.
    pub number: u64,
    /// When it completed.
    pub completed: SystemTime,
    /// The device's name.
    pub device: String,
    /// The kernel's name of the op, in lower case.
    pub op: String,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    pub bytes: u32,
    /// The block status: `ok` if it did not fail.
    pub status: &'static str,
    /// Latencies, where the kernel has the timestamps, in the order of `Phase`.
    pub latencies: [Option<Duration>; PHASES],
    /// The CPU on which it completed.
    pub cpu: u32,
    /// The cgroup that the kernel charges; empty if it is unknown.
    pub cgroup: String,
}

/// Statistics of the collector.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// How long collections took.
    pub durations: Histogram,
    /// When the last collection succeeded.
    pub last_success: Option<Instant>,
    /// Whether a collection waits for runs of the probe.
    pub wait: LongWait,
    /// Collections that failed.
    pub failures: u64,
    /// Collections that took longer than the interval.
    pub overruns: u64,
    /// Requeues that are not counted, because the kernel skipped the probe.
    pub lost_requeues: u64,
    /// Slots for series in the probe's maps, used or not.
    pub slots: u64,
    /// Kernel memory of the slots and of the workload tables, for both programs.
    pub map_bytes: u64,
    /// The probe's room for cgroups; none without workloads.
    pub workload_room: Option<WorkloadRoom>,
}

/// A collection's wait for runs of the probe, if it is a long one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongWait {
    /// There was none.
    #[default]
    None,
    /// It has not ended.
    InProgress,
    /// When the latest one ended.
    Ended(Instant),
}

impl Health {
    /// How long the collector has made no progress; `None` before the first collection. A wait for runs of the probe is
    /// progress: a restarted daemon would have to wait as well.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        match self.wait {
            LongWait::None => Some(self.last_success?.elapsed()),
            LongWait::InProgress => Some(Duration::ZERO),
            LongWait::Ended(at) => Some(self.last_success?.max(at).elapsed()),
        }
    }
}

/// The probe's room for cgroups that are counted apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadRoom {
    /// Places for cgroups.
    pub places: u64,
    /// Places of cgroups that exist, or have existed a while ago.
    pub used: u64,
    /// I/Os that had no room of their own, and are counted as `other`.
    pub refused_ios: u64,
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
