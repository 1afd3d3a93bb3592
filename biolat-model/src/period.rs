//! The I/O in a range of time, as plain data.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use biolat_common::series::Phase;
use serde::{Deserialize, Serialize};

use crate::{
    histogram::{Bounds, Histogram},
    json::{seconds, unix_time},
    name::Name,
    saturating::sum,
    snapshot::{DeviceView, Health, SlowIo, Snapshot, WorkloadView},
    text::sanitize,
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

/// The I/O in some successive intervals. Counters are what came; a device or op without I/O is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// When it began, by the wall clock as it was set when it ended.
    #[serde(with = "unix_time")]
    pub began: SystemTime,
    /// Time of its last collection.
    #[serde(rename = "taken", with = "unix_time")]
    pub ended: SystemTime,
    /// Its length by the monotonic clock.
    #[serde(rename = "seconds", with = "seconds")]
    pub length: Duration,
    /// Collections in it.
    pub collections: u64,
    /// Collections in it that failed.
    pub failures: u64,
    /// Of I/Os in flight the largest numbers and the largest age of all collections. None in a summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceView>,
    /// By cgroup; none if workloads are not counted or were dropped, and in a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<WorkloadView>>,
    /// The same in short, in a summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<Summary>,
    /// Completions in no histogram by reason, those that occurred.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<Name, u64>,
    /// Its slowest I/Os, in the order of their numbers.
    pub slow: Vec<SlowIo>,
    /// Slow I/Os that were not recorded, because there were too many.
    pub slow_dropped: u64,
}

/// The I/O of one device and op in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The device's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name, in lower case; [`IN_FLIGHT`] of I/Os that have not completed.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Completed requests.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The upper bound of the bucket of the longest total latency; the largest age of an I/O in flight.
    pub slowest_seconds: f64,
}

/// The op in a summary of I/Os that have been in flight for longer than any has taken that completed.
pub const IN_FLIGHT: &str = "in flight";

impl Period {
    /// As a snapshot of counters that were zero when it began.
    #[must_use]
    pub fn into_snapshot(self, started: SystemTime) -> Snapshot {
        Snapshot {
            taken: self.ended,
            started,
            devices: self.devices,
            workloads: self.workloads,
            lost: self.lost,
            slow: self.slow.into(),
            slow_dropped: self.slow_dropped,
            health: Health {
                durations: Histogram { zero: self.collections, ..Histogram::new() },
                failures: self.failures,
                ..Health::default()
            },
            ..Snapshot::default()
        }
    }

    /// With a summary in place of histograms and workloads.
    #[must_use]
    pub fn summarized(self) -> Self {
        let summary = self.devices.iter().flat_map(summaries).collect();
        Self { summary, devices: Vec::new(), workloads: None, ..self }
    }
}

fn summaries(view: &DeviceView) -> Vec<Summary> {
    let none = |op: &str| Summary {
        device: view.device.name.clone(),
        op: op.to_owned(),
        ios: 0,
        bytes: 0,
        errors: 0,
        slowest_seconds: 0.0,
    };
    // JSON has no infinity.
    let upper = |bounds: Bounds| if bounds == Bounds::OVERFLOW { bounds.lower } else { bounds.upper };
    let of_series = view.series.iter().map(|series| {
        let total = &series.histograms[Phase::Total as usize];
        Summary {
            ios: total.count(),
            bytes: series.bytes,
            errors: sum(series.errors.values()),
            slowest_seconds: total.max().map_or(0.0, upper),
            ..none(&series.op)
        }
    });
    let mut summaries: Vec<_> = of_series.collect();
    let oldest = view.inflight.oldest.as_secs_f64();
    if summaries.iter().all(|summary| summary.slowest_seconds < oldest) && oldest > 0.0 {
        summaries.push(Summary { slowest_seconds: oldest, ..none(IN_FLIGHT) });
    }
    summaries
}
