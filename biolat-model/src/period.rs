//! What came in a time, as plain data.

use std::time::{Duration, SystemTime};

use crate::{
    histogram::Histogram,
    snapshot::{DeviceView, Health, SlowIo, SlowLog, Snapshot, WorkloadView},
};

/// From when on there are intervals of each tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFrom {
    /// Of any tier: from here on the history is complete.
    pub all: SystemTime,
    /// Of 10 s or shorter.
    pub ten_seconds: SystemTime,
    /// Of each collection.
    pub collections: SystemTime,
    /// With sizes and workloads; none if neither is counted.
    pub breakdown: Option<SystemTime>,
}

/// What came in some successive intervals. The counters of devices are those that came; a device or op without any is left
/// out.
#[derive(Clone, Debug)]
pub struct Period {
    /// By the wall clock as it was set when it ended.
    pub began: SystemTime,
    pub ended: SystemTime,
    /// Its length by the monotonic clock.
    pub length: Duration,
    /// Collections in it, and how many of them failed.
    pub collections: u64,
    pub failures: u64,
    /// Of I/Os in flight the largest numbers and the largest age of all collections.
    pub devices: Vec<DeviceView>,
    /// What each workload did, by cgroup; none if they are not counted, or were dropped.
    pub workloads: Option<Vec<WorkloadView>>,
    /// Completions in no histogram by reason, those that occurred.
    pub lost: Vec<(&'static str, u64)>,
    /// Its slowest I/Os, in the order of their numbers.
    pub slow: Vec<SlowIo>,
    /// Slow I/Os that were not recorded.
    pub slow_dropped: u64,
}

impl Period {
    /// What came, in the shape of a snapshot of counters that were zero when it began.
    pub fn into_snapshot(self, started: SystemTime) -> Snapshot {
        Snapshot {
            taken: self.ended,
            started,
            devices: self.devices,
            workloads: self.workloads,
            lost: self.lost,
            slow: SlowLog { dropped: self.slow_dropped, ios: self.slow.into() },
            health: Health {
                durations: Histogram { zero: self.collections, ..Histogram::new() },
                failures: self.failures,
                ..Health::default()
            },
            probe: None,
            process: None,
            online_cpus: None,
        }
    }
}
