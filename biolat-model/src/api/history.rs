//! The JSON of `/api/v1/history`: what came in each interval of a range. What the parent module says of versions applies to it.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use biolat_common::series::Phase;
use serde::{Deserialize, Serialize};

use super::{ApiDevice, ApiSlowIo, ApiSnapshot, ApiWorkload, Daemon, VERSION, convert::named, seconds};
use crate::period::{KeptFrom, Period};
use crate::version;
use crate::{
    histogram::{Bounds, Histogram},
    saturating::sum,
    snapshot::{DeviceView, SeriesView},
    text::sanitize,
};

/// What came in a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiHistory {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's own version.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub biolat: String,
    /// The host's name; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub host: String,
    /// Seconds between collections.
    pub interval: f64,
    /// The range that was asked for, in seconds since the epoch.
    pub from: f64,
    /// Its end.
    pub to: f64,
    /// From when on there are intervals, in seconds since the epoch; none if there are none yet.
    pub complete_from: Option<f64>,
    /// From when on they are of 10 s at most.
    pub ten_seconds_from: Option<f64>,
    /// From when on they are of one collection each.
    pub collections_from: Option<f64>,
    /// From when on they have sizes and workloads; none if neither is counted, or memory was too short for any.
    #[serde(default)]
    pub breakdown_from: Option<f64>,
    /// The last field. In the order of time; the clock may have been set back in between.
    #[serde(default)]
    pub intervals: Vec<ApiInterval>,
}

/// What came in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiInterval {
    /// When it began, in seconds since the epoch.
    pub began: f64,
    /// Time of its last collection, in seconds since the epoch.
    pub taken: f64,
    /// Its length, whether the clock was set or not.
    pub seconds: f64,
    /// Collections in it.
    pub collections: u64,
    /// Collections in it that failed.
    pub failures: u64,
    /// The devices that had I/O or have some in flight. Their counters are what came in the interval; in flight is the most.
    /// None in a summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<ApiDevice>,
    /// What each workload did; none if unknown, and in a summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workloads: Option<Vec<ApiWorkload>>,
    /// The same in short, in a summary.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub summary: Vec<ApiSummary>,
    /// Completions in no histogram, by reason, over all devices.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub lost: BTreeMap<String, u64>,
    /// The slowest of its slow and failed I/Os, by number.
    pub slow: Vec<ApiSlowIo>,
    /// Slow and failed I/Os that were not recorded, because there were too many.
    pub slow_dropped: u64,
}

impl ApiHistory {
    /// Without any interval.
    #[must_use]
    pub fn of(
        host: &str,
        interval: Duration,
        [from, to]: [SystemTime; 2],
        kept_from: Option<KeptFrom>,
    ) -> Self {
        Self {
            version: VERSION,
            biolat: version::VERSION.to_owned(),
            host: host.to_owned(),
            interval: interval.as_secs_f64(),
            from: seconds(from),
            to: seconds(to),
            complete_from: kept_from.map(|kept| seconds(kept.all)),
            ten_seconds_from: kept_from.map(|kept| seconds(kept.ten_seconds)),
            collections_from: kept_from.map(|kept| seconds(kept.collections)),
            breakdown_from: kept_from.and_then(|kept| kept.breakdown).map(seconds),
            intervals: Vec::new(),
        }
    }
}

/// What one device and op did in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiSummary {
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

/// What stands for the op of I/Os that have been in flight for longer than any has taken that completed.
pub const IN_FLIGHT: &str = "in flight";

impl ApiInterval {
    /// The model of a period, with histograms or as a summary.
    #[must_use]
    pub fn of(period: &Period, is_summary: bool) -> Self {
        let views = || period.devices.iter();
        let workloads = period.workloads.as_ref().filter(|_| !is_summary);
        Self {
            began: seconds(period.began),
            taken: seconds(period.ended),
            seconds: period.length.as_secs_f64(),
            collections: period.collections,
            failures: period.failures,
            devices: if is_summary { Vec::new() } else { views().map(ApiDevice::of).collect() },
            workloads: workloads.map(|workloads| workloads.iter().map(ApiWorkload::of).collect()),
            summary: if is_summary { views().flat_map(summaries_of_view).collect() } else { Vec::new() },
            lost: named(&period.lost),
            slow: period.slow.iter().map(ApiSlowIo::of).collect(),
            slow_dropped: period.slow_dropped,
        }
    }
}

impl ApiInterval {
    /// With a summary instead of histograms, as the API has it with `detail=summary`.
    #[must_use]
    pub fn summarized(self) -> Self {
        let summary = self.devices.iter().flat_map(|device| {
            let ops =
                device.ops.iter().map(|op| (op.op.as_str(), &op.total, op.bytes, sum(op.errors.values())));
            summaries(
                &device.name,
                ops,
                device.inflight.map_or(0.0, |inflight| inflight.oldest.as_secs_f64()),
            )
        });
        Self { summary: summary.collect(), devices: Vec::new(), ..self }
    }

    /// The interval as a snapshot whose counters were zero when the interval began, of a daemon that collects every so many
    /// seconds.
    #[must_use]
    pub fn as_snapshot(&self, collected_every: f64) -> ApiSnapshot {
        ApiSnapshot {
            version: VERSION,
            biolat: String::new(),
            host: String::new(),
            taken: self.taken,
            started: 0.0,
            interval: collected_every,
            devices: self.devices.clone(),
            workloads: self.workloads.clone(),
            lost: self.lost.clone(),
            slow_dropped: self.slow_dropped,
            daemon: Daemon { collections: self.collections, failures: self.failures, ..Daemon::default() },
        }
    }
}

fn summaries_of_view(view: &DeviceView) -> Vec<ApiSummary> {
    let series = view.series.iter().map(|series: &SeriesView| {
        let errors = sum(series.errors.iter().map(|(_, count)| count));
        (series.op.as_str(), &series.histograms[Phase::Total as usize], series.bytes, errors)
    });
    summaries(&view.device.name, series, view.inflight.oldest.as_secs_f64())
}

/// Of ops with their total latencies, bytes and errors, and the largest age in flight.
fn summaries<'a>(
    device: &str,
    ops: impl Iterator<Item = (&'a str, &'a Histogram, u64, u64)>,
    oldest: f64,
) -> Vec<ApiSummary> {
    let none = |op: &str| ApiSummary {
        device: device.to_owned(),
        op: op.to_owned(),
        ios: 0,
        bytes: 0,
        errors: 0,
        slowest_seconds: 0.0,
    };
    // JSON has no infinity.
    let upper = |bounds: Bounds| if bounds == Bounds::OVERFLOW { bounds.lower } else { bounds.upper };
    let of_op = |(op, total, bytes, errors): (&str, &Histogram, u64, u64)| ApiSummary {
        ios: total.count(),
        bytes,
        errors,
        slowest_seconds: total.max().map_or(0.0, upper),
        ..none(op)
    };
    let mut summaries: Vec<_> = ops.map(of_op).collect();
    if summaries.iter().all(|summary| summary.slowest_seconds < oldest) && oldest > 0.0 {
        summaries.push(ApiSummary { slowest_seconds: oldest, ..none(IN_FLIGHT) });
    }
    summaries
}
