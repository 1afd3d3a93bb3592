//! One collection: plain data, immutable. Its JSON is that of `/api/v1/snapshot`, so text and numbers may come from another
//! host: text is sanitized when it is deserialized, and sums saturate.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use biolat_common::series::{PHASES, Phase};
use serde::{Deserialize, Serialize};

use crate::{
    band_histogram::BandHistogram,
    cgroup::Identity,
    device::{Device, Group},
    histogram::Histogram,
    json::{per_phase, phase_names, seconds, seconds_of_ns, seconds_per_phase, unix_time},
    name::Name,
    size_histogram::SizeHistogram,
    text::sanitize,
    version,
};

/// A device whose oldest I/O is older hangs, wherever people read it.
pub const HUNG: Duration = Duration::from_secs(10);

/// Everything that is exposed of one collection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`version::API`].
    pub version: u32,
    /// The version of the biolat that took it.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: Name,
    /// The host's name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Between collections.
    #[serde(with = "seconds")]
    pub interval: Duration,
    /// Time of the collection.
    #[serde(with = "unix_time")]
    pub taken: SystemTime,
    /// When the probe was attached: every counter was zero then.
    #[serde(with = "unix_time")]
    pub started: SystemTime,
    /// The devices that are shown, by name.
    pub devices: Vec<DeviceView>,
    /// By cgroup; none with `--workloads off`, and on kernels that do not tell the cgroup of an I/O.
    #[serde(default)]
    pub workloads: Option<Vec<WorkloadView>>,
    /// Completions in no histogram, by reason, over all devices.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<Name, u64>,
    /// The latest I/Os that were slow or failed, in the order of their numbers, which is that of completion among those that
    /// were read together; the newest last.
    #[serde(skip)]
    pub slow: Arc<[SlowIo]>,
    /// Slow and failed I/Os that were not recorded, because there were too many.
    pub slow_dropped: u64,
    /// Statistics of the collector.
    #[serde(rename = "daemon")]
    pub health: Health,
    /// Runs of the probe and their time, if the kernel measures them.
    #[serde(default)]
    pub probe: Option<ProbeRuns>,
    /// This process; none without `/proc`.
    #[serde(default)]
    pub process: Option<Process>,
    /// The number of CPUs that are online; none if sysfs cannot be read.
    #[serde(default)]
    pub online_cpus: Option<usize>,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            version: version::API,
            biolat: Name::Borrowed(version::VERSION),
            host: String::new(),
            interval: Duration::ZERO,
            taken: UNIX_EPOCH,
            started: UNIX_EPOCH,
            devices: Vec::new(),
            workloads: None,
            lost: BTreeMap::new(),
            slow: Arc::default(),
            slow_dropped: 0,
            health: Health::default(),
            probe: None,
            process: None,
            online_cpus: None,
        }
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    #[serde(flatten)]
    pub device: Device,
    /// When its counters were zero.
    #[serde(with = "unix_time")]
    pub since: SystemTime,
    /// Which phases are available, in the order of `Phase`.
    #[serde(with = "phase_names")]
    pub phases: [bool; PHASES],
    /// Missing phases after admission, and the command that enables them; empty if none is missing.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lacks: String,
    /// By op.
    #[serde(rename = "ops")]
    pub series: Vec<SeriesView>,
    /// Completions in the disk statistics that the probe missed; empty if the device is not audited.
    pub unseen: BTreeMap<Group, u64>,
    /// I/Os that it has not completed yet.
    pub inflight: Inflight,
    /// The CPUs that its completions ran on.
    #[serde(flatten)]
    pub spread: CpuSpread,
}

impl Default for DeviceView {
    fn default() -> Self {
        Self {
            device: Device::default(),
            since: UNIX_EPOCH,
            phases: [false; PHASES],
            lacks: String::new(),
            series: Vec::new(),
            unseen: BTreeMap::new(),
            inflight: Inflight::default(),
            spread: CpuSpread::default(),
        }
    }
}

/// How the completions of a device spread over the CPUs. Shares are of the last few minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSpread {
    /// Requests that have ended on each CPU, by its number.
    pub completions: Vec<u64>,
    /// The number of CPUs that would have as many each, 1 / the sum of the squared shares. None without completions.
    pub effective_cpus: Option<f64>,
    /// The share of the CPU with most of them.
    pub largest_share: Option<f64>,
    /// The share that ran on another NUMA node than the device's; none if that is unknown.
    pub off_node_share: Option<f64>,
}

impl DeviceView {
    /// The latencies that are missing from allocation on, and how to have them recorded; empty if none is missing.
    #[must_use]
    pub fn lacks(device: &Device, phases: [bool; PHASES]) -> String {
        let is_missing = |&phase: &Phase| phase != Phase::Admission && !phases[phase as usize];
        if Phase::ALL.iter().any(is_missing) { device.hint().unwrap_or_default() } else { String::new() }
    }
}

/// One device and op.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesView {
    /// The kernel's name of the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// In the order of `Phase`.
    #[serde(rename = "latency", with = "per_phase")]
    pub histograms: [Histogram; PHASES],
    /// Failed completions by status, those that occurred.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub errors: BTreeMap<Name, u64>,
    /// Times that a request went back to the queue after its dispatch.
    #[serde(default)]
    pub requeues: u64,
    /// By size; none with `--sizes off`.
    #[serde(default)]
    pub sizes: Option<SizesView>,
    /// I/Os of workloads that are not shown any more.
    #[serde(default)]
    pub ended_workload_ios: u64,
}

/// Requests of one device and op by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizesView {
    /// How many.
    pub requests: SizeHistogram,
    /// Those that have requests, in ascending order.
    pub bands: Vec<BandView>,
}

/// Requests of a range of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BandView {
    /// The range: `le_4KiB` is up to 4 KiB, `le_16KiB` from there up to 16 KiB, `gt_1MiB` above 1 MiB.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub size: Name,
    /// Device latency; of requests without a dispatch timestamp, total latency.
    pub device: BandHistogram,
}

/// A cgroup that the kernel charges with I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadView {
    /// Its path from the root of the hierarchy: `/` for the kernel itself, `other` for all that there was no room for.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub cgroup: String,
    /// A short name for people: `postgresql.service`, `namespace/pod/container`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// Who it is, by its path.
    #[serde(flatten)]
    pub identity: Identity,
    /// When its counters were zero.
    #[serde(with = "unix_time")]
    pub since: SystemTime,
    /// Whether the cgroup has been removed.
    #[serde(rename = "gone")]
    pub is_gone: bool,
    /// By device and op. It may have devices that are not shown any more.
    pub usage: Vec<WorkloadUsage>,
}

impl WorkloadView {
    /// A cgroup without I/O.
    #[must_use]
    pub fn new(cgroup: &str, identity: &Identity, since: SystemTime) -> Self {
        Self {
            name: identity.short_name(cgroup),
            cgroup: cgroup.to_owned(),
            identity: identity.clone(),
            since,
            is_gone: false,
            usage: Vec::new(),
        }
    }
}

/// One workload's I/O on one device with one op.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadUsage {
    /// The device's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name of the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Nanoseconds in the queue, of requests with a dispatch timestamp.
    #[serde(rename = "queue_seconds", with = "seconds_of_ns")]
    pub queue_ns: u128,
    /// Nanoseconds in the device, of requests with a dispatch timestamp.
    #[serde(rename = "device_seconds", with = "seconds_of_ns")]
    pub device_ns: u128,
    /// Total latency.
    #[serde(rename = "total")]
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

/// An I/O that was slow or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowIo {
    /// Grows by one from record to record.
    pub number: u64,
    /// When it completed.
    #[serde(with = "unix_time")]
    pub completed: SystemTime,
    /// The device's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name of the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// The first sector, of 512 bytes.
    pub sector: u64,
    pub bytes: u32,
    /// The block status: `ok` if it did not fail.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub status: Name,
    /// Latencies, where the kernel has the timestamps, in the order of `Phase`.
    #[serde(rename = "latency", with = "seconds_per_phase")]
    pub latencies: [Option<Duration>; PHASES],
    /// The CPU on which it completed.
    pub cpu: u32,
    /// The cgroup that the kernel charges, by its path; none if it is unknown.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub workload: Option<String>,
}

/// Statistics of the collector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// How long collections took.
    #[serde(rename = "collections")]
    pub durations: Histogram,
    /// When the last collection succeeded.
    #[serde(skip)]
    pub last_success: Option<Instant>,
    /// Whether a collection waits for runs of the probe.
    #[serde(skip)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadRoom {
    /// Places for cgroups.
    pub places: u64,
    /// Places of cgroups that exist, or have existed a while ago.
    pub used: u64,
    /// I/Os that had no room of their own, and are counted as `other`.
    pub refused_ios: u64,
}

/// The kernel's statistics of the probe's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRuns {
    #[serde(rename = "runs")]
    pub count: u64,
    /// Total time of all runs.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
}

/// This process, as in `/proc/self`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
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
