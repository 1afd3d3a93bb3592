//! The immutable result of one collection, as plain data. Its JSON is served as `/api/v1/snapshot`, so it may come from another
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
    io_names::IoNames,
    json::{per_phase, phase_names, seconds, seconds_of_ns, seconds_per_phase, unix_time},
    name::Name,
    size_histogram::SizeHistogram,
    text::sanitize,
    version,
};

/// A device is reported as hung if its oldest I/O is older than this.
pub const HUNG: Duration = Duration::from_secs(10);

/// Everything that one collection exposes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`version::API`].
    pub version: u32,
    /// Version of the daemon that took it.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: Name,
    /// Host name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Time between collections.
    #[serde(with = "seconds")]
    pub interval: Duration,
    /// Time of the collection.
    #[serde(with = "unix_time")]
    pub taken: SystemTime,
    /// Time when the probe was attached, with all counters at zero.
    #[serde(with = "unix_time")]
    pub started: SystemTime,
    /// The devices shown: drives, then volumes, each ordered by name. See [`drives`](Self::drives).
    pub devices: Vec<DeviceView>,
    /// By cgroup; `None` with `--workloads off`, and on kernels that do not expose the cgroup of an I/O.
    #[serde(default)]
    pub workloads: Option<Vec<WorkloadView>>,
    /// Completions in no histogram, by reason, over all devices.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<Name, u64>,
    /// I/Os of volumes in no histogram, by reason; empty if volumes are not measured.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub volume_losses: BTreeMap<Name, u64>,
    /// The latest slow or failed I/Os, ordered by number, the newest last. Records read together are numbered in order of
    /// completion.
    #[serde(skip)]
    pub slow: Arc<[SlowIo]>,
    /// Slow and failed I/Os that were not recorded because there were too many.
    pub slow_dropped: u64,
    /// Collector statistics.
    #[serde(rename = "daemon")]
    pub health: Health,
    /// Run count and run time of the probe, if the kernel measures them.
    #[serde(default)]
    pub probe: Option<ProbeRuns>,
    /// Statistics of the daemon's process; `None` without `/proc`.
    #[serde(default)]
    pub process: Option<Process>,
    /// Number of online CPUs; `None` if sysfs cannot be read.
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
            volume_losses: BTreeMap::new(),
            slow: Arc::default(),
            slow_dropped: 0,
            health: Health::default(),
            probe: None,
            process: None,
            online_cpus: None,
        }
    }
}

impl Snapshot {
    /// The devices with requests. Only their I/Os may be added up: an I/O of a volume is also one of the drives below it.
    pub fn drives(&self) -> impl Iterator<Item = &DeviceView> {
        self.devices.iter().filter(|view| !view.device.is_volume())
    }

    /// The devices without requests.
    pub fn volumes(&self) -> impl Iterator<Item = &DeviceView> {
        self.devices.iter().filter(|view| view.device.is_volume())
    }
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceView {
    #[serde(flatten)]
    pub device: Device,
    /// Time when its counters started at zero.
    #[serde(with = "unix_time")]
    pub since: SystemTime,
    /// Whether each phase is available, in the order of `Phase`.
    #[serde(with = "phase_names")]
    pub phases: [bool; PHASES],
    /// Missing phases other than admission, and the command that enables them; empty if none is missing.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lacks: String,
    /// By op.
    #[serde(rename = "ops")]
    pub series: Vec<SeriesView>,
    /// Completions in the disk statistics that the probe missed; empty if the device is not audited.
    pub unseen: BTreeMap<Group, u64>,
    /// I/Os that have not completed yet.
    pub inflight: Inflight,
    /// Waits for a free tag; `None` if they are not counted, as before Linux 7.3.
    #[serde(default)]
    pub tag_waits: Option<TagWaits>,
    /// Distribution of its completions over the CPUs.
    #[serde(flatten)]
    pub spread: CpuSpread,
    /// Events that the NVMe driver has counted, by name; empty if the kernel counts none.
    #[serde(default, deserialize_with = "sanitize::deserialize", skip_serializing_if = "BTreeMap::is_empty")]
    pub nvme_events: BTreeMap<Name, u64>,
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
            tag_waits: None,
            spread: CpuSpread::default(),
            nvme_events: BTreeMap::new(),
        }
    }
}

/// Distribution of a device's completions over the CPUs. Shares cover the last few minutes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuSpread {
    /// Number of requests that ended on each CPU, by CPU number.
    pub completions: Vec<u64>,
    /// Effective number of CPUs: 1 / the sum of the squared shares. `None` without completions.
    pub effective_cpus: Option<f64>,
    /// Share of the busiest CPU.
    pub largest_share: Option<f64>,
    /// Share that completed on a NUMA node other than the device's; `None` if the node is unknown.
    pub off_node_share: Option<f64>,
}

impl DeviceView {
    /// Describes the missing phases other than admission and how to enable them; empty if none is missing.
    #[must_use]
    pub fn lacks(device: &Device, phases: [bool; PHASES]) -> String {
        let is_missing = |&phase: &Phase| phase != Phase::Admission && !phases[phase as usize];
        if Phase::ALL.iter().any(is_missing) { device.hint().unwrap_or_default() } else { String::new() }
    }
}

/// One device and op.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesView {
    /// The kernel's name for the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Latency histograms, in the order of `Phase`.
    #[serde(rename = "latency", with = "per_phase")]
    pub histograms: [Histogram; PHASES],
    /// Failed completions by status; zeros are omitted.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub errors: BTreeMap<Name, u64>,
    /// Number of times that a request was requeued after dispatch.
    #[serde(default)]
    pub requeues: u64,
    /// By size; `None` with `--sizes off`.
    #[serde(default)]
    pub sizes: Option<SizesView>,
    /// I/Os of workloads that are no longer shown.
    #[serde(default)]
    pub ended_workload_ios: u64,
}

/// Requests of one device and op by size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SizesView {
    /// Request counts.
    pub requests: SizeHistogram,
    /// Bands that have requests, in ascending order.
    pub bands: Vec<BandView>,
}

/// Requests in a size band.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BandView {
    /// The band: `le_4KiB` is up to 4 KiB, `le_16KiB` from there up to 16 KiB, `gt_1MiB` above 1 MiB.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub size: Name,
    /// Device latency, or total latency for requests without a dispatch timestamp.
    pub device: BandHistogram,
}

/// A cgroup to which the kernel charges I/O.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadView {
    /// Path from the root of the hierarchy: `/` for the root cgroup, `other` for everything that did not fit.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub cgroup: String,
    /// A short, readable name: `postgresql.service`, `namespace/pod/container`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// Identity derived from its path.
    #[serde(flatten)]
    pub identity: Identity,
    /// Time when its counters started at zero.
    #[serde(with = "unix_time")]
    pub since: SystemTime,
    /// Whether the cgroup has been removed.
    #[serde(rename = "gone")]
    pub is_gone: bool,
    /// By device and op. Can include devices that are no longer shown.
    pub usage: Vec<WorkloadUsage>,
    /// Time for which its tasks were stalled on I/O. `None` in a history, and where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<Stalled>,
}

impl WorkloadView {
    /// Returns a cgroup without I/O.
    #[must_use]
    pub fn new(cgroup: &str, identity: &Identity, since: SystemTime) -> Self {
        Self {
            name: identity.short_name(cgroup),
            cgroup: cgroup.to_owned(),
            identity: identity.clone(),
            since,
            is_gone: false,
            usage: Vec::new(),
            stalled: None,
        }
    }
}

/// Time for which tasks of a cgroup, or of a cgroup below it, were stalled on I/O (`io.pressure`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// With at least one task stalled.
    #[serde(rename = "some_seconds", with = "seconds")]
    pub some: Duration,
    /// With all tasks stalled that were not idle.
    #[serde(rename = "full_seconds", with = "seconds")]
    pub full: Duration,
    /// Whether the cgroup or one above it had a limit in `io.max` when it was last stalled.
    #[serde(rename = "io_max")]
    pub has_limit: bool,
}

/// One workload's I/O on one device with one op.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadUsage {
    /// Device name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name for the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Nanoseconds in the queue; only requests with a dispatch timestamp.
    #[serde(rename = "queue_seconds", with = "seconds_of_ns")]
    pub queue_ns: u128,
    /// Nanoseconds in the device; only requests with a dispatch timestamp.
    #[serde(rename = "device_seconds", with = "seconds_of_ns")]
    pub device_ns: u128,
    /// Total latency.
    #[serde(rename = "total")]
    pub latency: BandHistogram,
}

impl WorkloadUsage {
    /// Returns the time in the queue.
    #[must_use]
    pub fn queue_seconds(&self) -> f64 {
        self.queue_ns as f64 / 1e9
    }

    /// Returns the time in the device.
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
    /// Age of the oldest I/O, in the scheduler or the driver; zero if there is none.
    #[serde(rename = "oldest_seconds", with = "seconds")]
    pub oldest: Duration,
    /// Whether `oldest` is exact. If not, it is a lower bound: how long I/Os have been in flight without a completion.
    #[serde(rename = "exact")]
    pub is_exact: bool,
}

impl Inflight {
    /// Returns the number of I/Os that were dispatched to the driver.
    #[must_use]
    pub fn dispatched(&self) -> u64 {
        self.reads.saturating_add(self.writes)
    }

    /// Whether no I/O is in flight, in the scheduler or in the driver.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.dispatched() == 0 && self.oldest.is_zero()
    }

    /// Whether the oldest I/O is old enough for the device to count as hung.
    #[must_use]
    pub fn is_hung(&self) -> bool {
        self.oldest > HUNG
    }
}

/// Tasks that had to sleep because no tag was free, by pool of tags. Only the times that a task went to sleep are counted: the
/// kernel does not show how long it slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TagWaits {
    /// The driver's tags: without a scheduler, each request needs one from its allocation on.
    pub driver: PoolWaits,
    /// The scheduler's tags.
    pub scheduler: PoolWaits,
    /// The tags that a driver reserves for its own commands.
    pub reserved: PoolWaits,
}

/// Waits for a tag of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolWaits {
    /// Number of waits. One I/O can wait several times.
    pub waits: u64,
    /// Number of tags of the hardware queue at the latest wait; 0 for reserved tags.
    pub tags: u64,
}

impl TagWaits {
    /// Returns the waits since an earlier snapshot.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        let since = |now: PoolWaits, earlier: PoolWaits| PoolWaits {
            waits: now.waits.saturating_sub(earlier.waits),
            ..now
        };
        Self {
            driver: since(self.driver, earlier.driver),
            scheduler: since(self.scheduler, earlier.scheduler),
            reserved: since(self.reserved, earlier.reserved),
        }
    }

    /// The pools by name.
    #[must_use]
    pub fn pools(&self) -> [(&'static str, PoolWaits); 3] {
        [("driver", self.driver), ("scheduler", self.scheduler), ("reserved", self.reserved)]
    }
}

/// An I/O that was slow or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowIo {
    /// Sequence number, incremented for each record.
    pub number: u64,
    /// Time of completion.
    #[serde(with = "unix_time")]
    pub completed: SystemTime,
    /// Device name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name for the op, in lower case.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// First sector, in units of 512 bytes.
    pub sector: u64,
    pub bytes: u32,
    /// Block status; `ok` if it did not fail.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub status: Name,
    /// Latencies for which the kernel has timestamps, in the order of `Phase`.
    #[serde(rename = "latency", with = "seconds_per_phase")]
    pub latencies: [Option<Duration>; PHASES],
    /// CPU on which it completed.
    pub cpu: u32,
    /// Path of the cgroup that the kernel charges; `None` if unknown.
    #[serde(default, deserialize_with = "sanitize::deserialize")]
    pub workload: Option<String>,
    /// Its file and its process.
    #[serde(flatten)]
    pub names: IoNames,
}

impl SlowIo {
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.status != "ok"
    }
}

/// Collector statistics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Health {
    /// Durations of collections.
    #[serde(rename = "collections")]
    pub durations: Histogram,
    /// Time of the last successful collection.
    #[serde(skip)]
    pub last_success: Option<Instant>,
    /// State of long waits for runs of the probe to end.
    #[serde(skip)]
    pub wait: LongWait,
    /// Collections that failed.
    pub failures: u64,
    /// Collections that took longer than the interval.
    pub overruns: u64,
    /// Requeues that were not counted because the kernel skipped the probe.
    pub lost_requeues: u64,
    /// Waits for a tag that were not counted, because the kernel skipped the probe or too many devices have had waits; `None` if
    /// they are not counted at all.
    pub lost_tag_waits: Option<u64>,
    /// Slots for series in the probe's maps, used or not.
    pub slots: u64,
    /// Kernel memory for slots and workload tables, for both programs.
    pub map_bytes: u64,
    /// Room for cgroups in the probe's maps; `None` without workloads.
    pub workload_room: Option<WorkloadRoom>,
}

/// Whether a collection has had to wait a long time for runs of the probe to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongWait {
    /// No long wait so far.
    #[default]
    None,
    /// The wait has not ended yet.
    InProgress,
    /// Time when the latest long wait ended.
    Ended(Instant),
}

impl Health {
    /// Returns how long the collector has made no progress, or `None` before the first collection. Waiting for runs of the probe
    /// to end counts as progress, because a restarted daemon would have to wait too.
    #[must_use]
    pub fn stalled(&self) -> Option<Duration> {
        match self.wait {
            LongWait::None => Some(self.last_success?.elapsed()),
            LongWait::InProgress => Some(Duration::ZERO),
            LongWait::Ended(at) => Some(self.last_success?.max(at).elapsed()),
        }
    }
}

/// Room for cgroups in the probe's maps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadRoom {
    /// Places for cgroups.
    pub places: u64,
    /// Places taken by cgroups that exist or were removed recently.
    pub used: u64,
    /// I/Os counted as `other` because there was no room for their cgroup.
    pub refused_ios: u64,
}

/// The kernel's statistics on runs of the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeRuns {
    #[serde(rename = "runs")]
    pub count: u64,
    /// Total time of all runs.
    #[serde(rename = "seconds", with = "seconds")]
    pub time: Duration,
}

/// Statistics of the daemon's process, from `/proc/self`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// User and system CPU time.
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub open_fds: u64,
    /// Limit on open file descriptors.
    pub max_fds: u64,
    /// Start time in seconds since the epoch.
    pub start_time_seconds: f64,
}
