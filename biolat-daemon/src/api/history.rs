//! The JSON of `/api/v1/history`: what came in each interval of a range. What the parent module says of versions applies to it.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use biolat_common::series::Phase;
use serde::{Deserialize, Serialize};

use super::{ApiDevice, ApiSlowIo, VERSION, convert::named, seconds};
use crate::{
    histogram::Bounds,
    history::{KeptFrom, Period},
    snapshot::{DeviceView, SeriesView},
    version,
};

/// What came in a range.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiHistory<T = ApiInterval> {
    /// [`VERSION`].
    pub version: u32,
    /// The daemon's own version.
    pub biolat: String,
    /// The host's name; empty if unknown.
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
    /// The last field. In the order of time; the clock may have been set back in between.
    pub intervals: Vec<T>,
}

/// What came in an interval, in short.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiIntervalSummary {
    /// As in [`ApiInterval`]. The same is true of the fields below.
    pub began: f64,
    pub taken: f64,
    pub seconds: f64,
    pub failures: u64,
    pub devices: Vec<ApiDeviceSummary>,
    pub slow: Vec<ApiSlowIo>,
}

/// One device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiDeviceSummary {
    /// The kernel's name: `nvme0n1`.
    pub name: String,
    /// The largest age of an I/O in flight; 0 if there was none.
    pub oldest_seconds: f64,
    /// Those that had I/O.
    pub ops: Vec<ApiOpSummary>,
}

/// One device and op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiOpSummary {
    /// The kernel's name, in lower case: `read`.
    pub op: String,
    /// Completed requests.
    pub ios: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The upper bound of the bucket of the longest total latency; 0 if there is none.
    pub slowest_seconds: f64,
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
    pub passes: u64,
    /// Collections in it that failed.
    pub failures: u64,
    /// The devices that had I/O or have some in flight. Their counters are what came in the interval; in flight is the most.
    pub devices: Vec<ApiDevice>,
    /// Completions in no histogram, by reason, over all devices.
    pub lost: BTreeMap<String, u64>,
    /// The slowest of its slow and failed I/Os, by number.
    pub slow: Vec<ApiSlowIo>,
    /// Slow and failed I/Os that were not recorded, because there were too many.
    pub slow_dropped: u64,
}

impl<T> ApiHistory<T> {
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
            intervals: Vec::new(),
        }
    }
}

impl ApiInterval {
    /// The model of a period.
    #[must_use]
    pub fn of(period: &Period) -> Self {
        Self {
            began: seconds(period.began),
            taken: seconds(period.ended),
            seconds: period.length.as_secs_f64(),
            passes: period.collections,
            failures: period.failures,
            devices: period.devices.iter().map(ApiDevice::of).collect(),
            lost: named(&period.lost),
            slow: period.slow.iter().map(ApiSlowIo::of).collect(),
            slow_dropped: period.slow_dropped,
        }
    }
}

impl ApiIntervalSummary {
    /// The summary of a period.
    #[must_use]
    pub fn of(period: &Period) -> Self {
        let device = |view: &DeviceView| ApiDeviceSummary {
            name: view.device.name.clone(),
            oldest_seconds: view.inflight.oldest.as_secs_f64(),
            ops: view.series.iter().map(ApiOpSummary::of).collect(),
        };
        Self {
            began: seconds(period.began),
            taken: seconds(period.ended),
            seconds: period.length.as_secs_f64(),
            failures: period.failures,
            devices: period.devices.iter().map(device).collect(),
            slow: period.slow.iter().map(ApiSlowIo::of).collect(),
        }
    }
}

impl ApiOpSummary {
    fn of(series: &SeriesView) -> Self {
        let total = &series.histograms[Phase::Total as usize];
        // JSON has no infinity.
        let upper = |bounds: Bounds| if bounds == Bounds::OVERFLOW { bounds.lower } else { bounds.upper };
        Self {
            op: series.op.clone(),
            ios: total.count(),
            bytes: series.bytes,
            errors: series.errors.iter().map(|(_, count)| count).sum(),
            slowest_seconds: total.max().map_or(0.0, upper),
        }
    }
}
