//! The I/O in a time range, as plain data.

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

/// Start of the history in each tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFrom {
    /// Start of the oldest interval in any tier; the history is complete from then on.
    pub all: SystemTime,
    /// Time from which intervals are at most 10 s long.
    pub ten_seconds: SystemTime,
    /// Time from which every collection has its own interval.
    pub collections: SystemTime,
    /// Time from which intervals include sizes and workloads; `None` if neither is counted.
    pub breakdown: Option<SystemTime>,
}

/// The I/O in successive intervals. Counters cover only this period; a device or op without I/O is omitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Period {
    /// Start of the period, according to the wall clock's setting at its end.
    #[serde(with = "unix_time")]
    pub began: SystemTime,
    /// Time of its last collection.
    #[serde(rename = "taken", with = "unix_time")]
    pub ended: SystemTime,
    /// Length by the monotonic clock.
    #[serde(rename = "seconds", with = "seconds")]
    pub length: Duration,
    /// Number of collections.
    pub collections: u64,
    /// Number of failed collections.
    pub failures: u64,
    /// Empty in a summary. The counts and the age of I/Os in flight are the maxima over all collections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceView>,
    /// By cgroup; `None` in a summary, or if workloads are not counted or were dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<WorkloadView>>,
    /// Totals per device and op; empty unless this is a summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<Summary>,
    /// Completions in no histogram, by reason; zeros are omitted.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<Name, u64>,
    /// The slowest I/Os, ordered by number.
    pub slow: Vec<SlowIo>,
    /// Slow I/Os that were not recorded because there were too many.
    pub slow_dropped: u64,
}

/// Totals of one device and op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Device name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// The kernel's name for the op in lower case, or [`IN_FLIGHT`] for I/Os that have not completed.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub op: String,
    /// Completed requests.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Upper bound of the bucket with the longest total latency, or the maximum age of an I/O in flight.
    pub slowest_seconds: f64,
}

/// Used instead of an op to summarize I/Os in flight, if one is older than the slowest completed I/O.
pub const IN_FLIGHT: &str = "in flight";

impl Period {
    /// Converts the period to a snapshot, as if all counters had been zero at its start.
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

    /// Replaces histograms and workloads with a summary.
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
