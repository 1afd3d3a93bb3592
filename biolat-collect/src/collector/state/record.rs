//! The state as it is written, in protobuf: a field that a version does not know is skipped, and one that is missing is zero.
//! Numbers of fields are never used again.

use prost::Message;

/// The version of the format, and of what the probe's maps hold. Another one is not read.
pub(in crate::collector) const FORMAT: u32 = 1;

/// Fields of the state that are [appended](super::encoded) to it.
pub(in crate::collector) mod field {
    pub(in crate::collector) const SERIES: u32 = 14;
    pub(in crate::collector) const WORKLOADS: u32 = 20;
    pub(in crate::collector) const BASELINES: u32 = 21;
    pub(in crate::collector) const SLOW_IOS: u32 = 22;
}

/// What the next daemon needs to continue.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct State {
    #[prost(uint32, tag = "1")]
    pub format: u32,
    /// The kernel's id of this boot.
    #[prost(string, tag = "2")]
    pub boot: String,
    /// See [`biolat_probe::identity`].
    #[prost(bytes = "vec", tag = "3")]
    pub probe: Vec<u8>,
    /// Slots that the probe was loaded with.
    #[prost(uint32, tag = "4")]
    pub slots: u32,
    /// The latest epoch that has been taken of the workloads.
    #[prost(uint64, tag = "5")]
    pub taken_epoch: u64,
    /// Nanoseconds since the epoch, like every time of day here.
    #[prost(uint64, tag = "6")]
    pub started: u64,
    #[prost(uint64, tag = "7")]
    pub unresolved_completions: u64,
    #[prost(message, repeated, tag = "9")]
    pub devices: Vec<DeviceRecord>,
    #[prost(message, required, tag = "10")]
    pub all_workloads: AllWorkloadsRecord,
    /// What the workloads have done, and the series do not have yet.
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
    /// Slots that cannot be in the free queue: their series have ended, and their baselines are not known.
    #[prost(uint32, repeated, tag = "8")]
    pub quarantined: Vec<u32>,
    /// The log of slow I/Os: a [`SlowIosRecord`].
    #[prost(message, required, tag = "22")]
    pub slow_ios: SlowIosRecord,
    /// Whether requests are counted by size.
    #[prost(bool, tag = "16")]
    pub sizes: bool,
    /// How many workloads are told apart.
    #[prost(uint32, tag = "17")]
    pub workloads_limit: u32,
    /// What was counted by probes before this one.
    #[prost(message, required, tag = "18")]
    pub earlier: EarlierRecord,
    /// How many links the probe has: none once it is detached.
    #[prost(uint32, tag = "19")]
    pub links: u32,
    /// Completions that were shown as lost by recursion.
    #[prost(uint64, tag = "23")]
    pub recursion: u64,
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
}

/// What a slot without a series holds from a former one.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct BaselineRecord {
    #[prost(uint32, tag = "1")]
    pub slot: u32,
    #[prost(message, required, tag = "2")]
    pub reading: ReadingRecord,
}

/// The counters of a slot. Arrays are [sparse](super::sparse).
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

/// The totals of a series. Arrays are [sparse](super::sparse).
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
    /// By how much the latest reading is ahead of the totals, if at all: it wraps, as the counters do. Not of times and bytes.
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

/// What is not of a single workload.
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

/// A cgroup that is counted with a workload of the same path.
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
    /// None of the kernel and of all others.
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
}

/// What was done on one device with one op.
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
    /// Of each phase, one more than the nanoseconds; 0 if it is unknown.
    #[prost(uint64, repeated, tag = "8")]
    pub latencies: Vec<u64>,
    #[prost(uint32, tag = "9")]
    pub cpu: u32,
    #[prost(string, tag = "10")]
    pub cgroup: String,
}

/// The collections so far.
#[derive(Clone, PartialEq, Message)]
pub(in crate::collector) struct CollectionsRecord {
    /// [Sparse](super::sparse).
    #[prost(bytes = "vec", tag = "1")]
    pub durations: Vec<u8>,
    /// Of all of them.
    #[prost(uint64, tag = "2")]
    pub sum_ns: u64,
    #[prost(uint64, tag = "3")]
    pub failures: u64,
    #[prost(uint64, tag = "4")]
    pub overruns: u64,
}
