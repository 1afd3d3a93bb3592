//! The state as protobuf: unknown fields are skipped, missing ones are zero. Field numbers are never reused.

use biolat_probe::{Dimensions, Room};
use prost::Message;

/// Version of the format, and of the contents of the probe's maps. No other version is read.
pub(in crate::collector) const FORMAT: u32 = 2;

/// Numbers of the fields that are [appended](super::encoded) to the state.
pub(in crate::collector) mod field {
    pub(in crate::collector) const SERIES: u32 = 14;
    pub(in crate::collector) const WORKLOADS: u32 = 20;
    pub(in crate::collector) const BASELINES: u32 = 21;
    pub(in crate::collector) const SLOW_IOS: u32 = 22;
}

/// Everything that the next daemon needs to continue.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct State {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The kernel's boot id.
    #[prost(string, tag = "2")]
    pub boot: String,
    /// See [`biolat_probe::identity`].
    #[prost(bytes = "vec", tag = "3")]
    pub probe: Vec<u8>,
    /// Number of slots that the probe was loaded with.
    #[prost(uint32, tag = "4")]
    pub slots: u32,
    /// See [`biolat_probe::Room`].
    #[prost(uint32, tag = "24")]
    pub banks: u32,
    #[prost(uint32, tag = "25")]
    pub rows: u32,
    #[prost(bool, tag = "26")]
    pub by_node: bool,
    #[prost(uint32, tag = "27")]
    pub first_rows: u32,
    /// Latest epoch whose workload table has been taken.
    #[prost(uint64, tag = "5")]
    pub taken_epoch: u64,
    /// In nanoseconds since the Unix epoch, like all times of day in the state.
    #[prost(uint64, tag = "6")]
    pub started: u64,
    #[prost(uint64, tag = "7")]
    pub unresolved_completions: u64,
    #[prost(message, repeated, tag = "9")]
    pub devices: Vec<DeviceRecord>,
    #[prost(message, required, tag = "10")]
    pub all_workloads: AllWorkloadsRecord,
    /// Workload I/O that the series do not include yet.
    #[prost(message, repeated, tag = "11")]
    pub pending: Vec<UsageRecord>,
    #[prost(message, required, tag = "12")]
    pub slow: SlowLogRecord,
    #[prost(message, required, tag = "13")]
    pub collections: CollectionsRecord,
    #[prost(message, repeated, tag = "14")]
    pub series: Vec<SeriesRecord>,
    #[prost(message, repeated, tag = "20")]
    pub workloads: Vec<WorkloadRecord>,
    #[prost(message, repeated, tag = "21")]
    pub baselines: Vec<BaselineRecord>,
    /// Slots that cannot be in the free queue: their series have ended, and their baselines are unknown.
    #[prost(uint32, repeated, tag = "8")]
    pub quarantined: Vec<u32>,
    #[prost(message, required, tag = "22")]
    pub slow_ios: SlowIosRecord,
    /// Whether requests are counted by size.
    #[prost(bool, tag = "16")]
    pub sizes: bool,
    /// Number of workloads that are counted separately.
    #[prost(uint32, tag = "17")]
    pub workloads_limit: u32,
    /// Counts of the probes before this one.
    #[prost(message, required, tag = "18")]
    pub earlier: EarlierRecord,
    /// Number of links of the probe; 0 once it is detached.
    #[prost(uint32, tag = "19")]
    pub links: u32,
    /// Completions reported as lost by recursion.
    #[prost(uint64, tag = "23")]
    pub recursion: u64,
}

impl State {
    /// What the sizes of the probe's maps depend on.
    pub(in crate::collector) fn dimensions(&self) -> Dimensions {
        let Self { slots, banks, rows, first_rows, by_node, .. } = *self;
        Dimensions { slots, room: Room { banks, rows, first_rows, by_node } }
    }
}

/// Counts of probes that have been replaced.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct EarlierRecord {
    #[prost(uint64, repeated, tag = "1")]
    pub losses: Vec<u64>,
    #[prost(uint64, tag = "2")]
    pub recursion_misses: u64,
    #[prost(uint64, tag = "3")]
    pub slow_dropped: u64,
    #[prost(uint64, tag = "4")]
    pub runs: u64,
    #[prost(uint64, tag = "5")]
    pub run_time_ns: u64,
    #[prost(uint64, tag = "6")]
    pub requeue_misses: u64,
    #[prost(uint64, tag = "7")]
    pub tag_wait_misses: u64,
}

/// Values that an earlier series left in a slot that has no series now.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct BaselineRecord {
    #[prost(uint32, tag = "1")]
    pub slot: u32,
    #[prost(message, required, tag = "2")]
    pub reading: ReadingRecord,
}

/// Counters of a slot. Arrays are [sparse](super::sparse).
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct ReadingRecord {
    /// See [`Series`](biolat_common::series::Series).
    #[prost(bytes = "vec", tag = "1")]
    pub times: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub errors: Vec<u8>,
    #[prost(uint32, tag = "4")]
    pub requeues: u32,
    #[prost(bytes = "vec", tag = "5")]
    pub cells: Vec<u8>,
    #[prost(bytes = "vec", tag = "6")]
    pub band_ns: Vec<u8>,
    #[prost(bytes = "vec", tag = "7")]
    pub requests: Vec<u8>,
    #[prost(bytes = "vec", tag = "8")]
    pub bands: Vec<u8>,
    #[prost(uint64, tag = "9")]
    pub undispatched: u64,
    #[prost(message, required, tag = "10")]
    pub completions: CompletionsRecord,
    #[prost(bool, tag = "11")]
    pub has_sizes: bool,
}

/// Completions on each CPU.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct CompletionsRecord {
    #[prost(uint32, tag = "1")]
    pub cpus: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub counts: Vec<u8>,
}

/// Totals of a series. Arrays are [sparse](super::sparse).
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct SeriesRecord {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint32, tag = "2")]
    pub slot: u32,
    #[prost(uint64, tag = "3")]
    pub left_out: u64,
    #[prost(bool, tag = "4")]
    pub is_unchanged: bool,
    /// Low and high halves.
    #[prost(bytes = "vec", tag = "5")]
    pub times: Vec<u8>,
    #[prost(uint64, tag = "6")]
    pub bytes: u64,
    #[prost(bytes = "vec", tag = "7")]
    pub errors: Vec<u8>,
    #[prost(uint64, tag = "8")]
    pub requeues: u64,
    #[prost(bytes = "vec", tag = "9")]
    pub cells: Vec<u8>,
    /// Low and high halves.
    #[prost(bytes = "vec", tag = "10")]
    pub band_ns: Vec<u8>,
    #[prost(bytes = "vec", tag = "11")]
    pub requests: Vec<u8>,
    #[prost(bytes = "vec", tag = "12")]
    pub bands: Vec<u8>,
    #[prost(uint64, tag = "13")]
    pub undispatched: u64,
    #[prost(message, required, tag = "14")]
    pub completions: CompletionsRecord,
    /// How far the latest reading is ahead of the totals, if at all, not counting times and bytes. It wraps like the counters.
    #[prost(message, optional, tag = "15")]
    pub ahead: Option<ReadingRecord>,
    /// Times and bytes of the latest reading.
    #[prost(bytes = "vec", tag = "16")]
    pub last_times: Vec<u8>,
    #[prost(bytes = "vec", tag = "17")]
    pub last_band_ns: Vec<u8>,
    #[prost(bool, tag = "18")]
    pub has_sizes: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct DeviceRecord {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(uint64, tag = "2")]
    pub inode: u64,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(uint64, tag = "4")]
    pub since: u64,
    #[prost(bool, tag = "5")]
    pub was_quiet: bool,
    #[prost(bool, tag = "6")]
    pub has_dispatch_times: bool,
    #[prost(bool, tag = "7")]
    pub has_submission_times: bool,
    #[prost(message, optional, tag = "8")]
    pub audit: Option<AuditRecord>,
    #[prost(message, repeated, tag = "9")]
    pub nvme_events: Vec<NvmeEventRecord>,
    /// Waits for a tag that probes before this one counted, by pool.
    #[prost(uint64, repeated, tag = "10")]
    pub earlier_tag_waits: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct NvmeEventRecord {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint64, tag = "2")]
    pub last: u64,
    #[prost(uint64, tag = "3")]
    pub growth: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct AuditRecord {
    #[prost(sint64, repeated, tag = "1")]
    pub initial_excess: Vec<i64>,
    #[prost(uint64, tag = "2")]
    pub initial_losses: u64,
    #[prost(uint64, repeated, tag = "3")]
    pub missed: Vec<u64>,
}

/// Data that belongs to no single workload.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct AllWorkloadsRecord {
    #[prost(message, repeated, tag = "1")]
    pub ended: Vec<EndedRecord>,
    #[prost(uint64, optional, tag = "2")]
    pub root: Option<u64>,
    #[prost(uint64, tag = "3")]
    pub taken: u64,
    #[prost(message, repeated, tag = "4")]
    pub aliases: Vec<AliasRecord>,
    #[prost(uint64, tag = "5")]
    pub without_room: u64,
}

/// A cgroup that is counted as part of a workload with the same path.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct AliasRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub workload: u64,
    #[prost(uint64, tag = "3")]
    pub css: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct WorkloadRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// `None` for the kernel and for `other`.
    #[prost(string, optional, tag = "2")]
    pub path: Option<String>,
    #[prost(uint64, tag = "3")]
    pub css: u64,
    #[prost(string, tag = "4")]
    pub pod: String,
    #[prost(string, tag = "5")]
    pub namespace: String,
    #[prost(string, tag = "6")]
    pub container: String,
    #[prost(uint64, tag = "7")]
    pub since: u64,
    #[prost(bool, tag = "8")]
    pub is_gone: bool,
    #[prost(message, repeated, tag = "9")]
    pub usage: Vec<UsageRecord>,
    #[prost(message, optional, tag = "10")]
    pub stalls: Option<StallsRecord>,
}

/// Microseconds of `io.pressure`: the latest reading, and the growth that has been counted.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct StallsRecord {
    #[prost(uint64, tag = "1")]
    pub some_last: u64,
    #[prost(uint64, tag = "2")]
    pub some: u64,
    #[prost(uint64, tag = "3")]
    pub full_last: u64,
    #[prost(uint64, tag = "4")]
    pub full: u64,
    #[prost(bool, tag = "5")]
    pub has_limit: bool,
}

/// I/O on one device with one op.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct UsageRecord {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    /// Low and high halves. [Sparse](super::sparse), like the cells.
    #[prost(bytes = "vec", tag = "2")]
    pub times: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
    #[prost(uint64, tag = "4")]
    pub errors: u64,
    #[prost(bytes = "vec", tag = "5")]
    pub cells: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct EndedRecord {
    #[prost(uint64, tag = "1")]
    pub key: u64,
    #[prost(uint64, tag = "2")]
    pub ios: u64,
}

/// The log of slow I/Os.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct SlowLogRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub dropped: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct SlowIosRecord {
    #[prost(message, repeated, tag = "1")]
    pub ios: Vec<SlowIoRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct SlowIoRecord {
    #[prost(uint64, tag = "1")]
    pub number: u64,
    #[prost(uint64, tag = "2")]
    pub completed: u64,
    #[prost(string, tag = "3")]
    pub device: String,
    #[prost(string, tag = "4")]
    pub op: String,
    #[prost(uint64, tag = "5")]
    pub sector: u64,
    #[prost(uint32, tag = "6")]
    pub bytes: u32,
    #[prost(string, tag = "7")]
    pub status: String,
    /// For each phase, the nanoseconds plus one; 0 if unknown.
    #[prost(uint64, repeated, tag = "8")]
    pub latencies: Vec<u64>,
    #[prost(uint32, tag = "9")]
    pub cpu: u32,
    #[prost(string, tag = "10")]
    pub cgroup: String,
    #[prost(message, optional, tag = "11")]
    pub names: Option<IoNamesRecord>,
}

/// File and process of an I/O. Texts are empty if they are unknown.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct IoNamesRecord {
    #[prost(string, tag = "1")]
    pub class: String,
    #[prost(string, tag = "2")]
    pub file_unknown: String,
    #[prost(string, tag = "3")]
    pub process_unknown: String,
    #[prost(message, optional, tag = "4")]
    pub file: Option<IoFileRecord>,
    #[prost(message, optional, tag = "5")]
    pub process: Option<IoProcessRecord>,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct IoFileRecord {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(string, optional, tag = "2")]
    pub mount: Option<String>,
    #[prost(string, tag = "3")]
    pub file_system: String,
    #[prost(uint64, tag = "4")]
    pub inode: u64,
    #[prost(bool, tag = "5")]
    pub removed: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct IoProcessRecord {
    #[prost(uint32, tag = "1")]
    pub id: u32,
    #[prost(string, tag = "2")]
    pub command: String,
    #[prost(string, tag = "3")]
    pub known_by: String,
}

/// Statistics of the collections so far.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct CollectionsRecord {
    /// [Sparse](super::sparse).
    #[prost(bytes = "vec", tag = "1")]
    pub durations: Vec<u8>,
    /// Sum of all durations.
    #[prost(uint64, tag = "2")]
    pub sum_ns: u64,
    #[prost(uint64, tag = "3")]
    pub failures: u64,
    #[prost(uint64, tag = "4")]
    pub overruns: u64,
}
