//! A window as one line of JSON, described in `docs/terminal.md`.

pub(super) mod processes;
mod sizes;
mod who;

use std::collections::BTreeMap;

use anyhow::Result;
use biolat_common::series::Phase;
use biolat_model::{
    band_histogram::BandHistogram,
    device::Group,
    histogram::{Bounds, Histogram},
    name::Name,
    snapshot::{Inflight, SlowIo},
    text::format::NumberFormat,
};
use serde::Serialize;

use super::{
    breakdown::{Block, Breakdown},
    claims::Claim,
    findings,
    output::json_line,
    window::Window,
};
use sizes::SizesJson;
use who::WorkloadJson;

#[derive(Serialize)]
struct WindowJson<'a> {
    ended: f64,
    seconds: f64,
    host: &'a str,
    restarted: bool,
    blocks: Vec<BlockJson<'a>>,
    /// By device and op, for `biolat sizes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<Vec<SizesJson<'a>>>,
    /// By device, for `biolat cpus`.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpus: Option<BTreeMap<&'a str, &'a [u64]>>,
    /// By device and workload, for `biolat who`.
    #[serde(skip_serializing_if = "Option::is_none")]
    who: Option<Vec<WorkloadJson<'a>>>,
    /// By device, omitting devices without any.
    inflight: BTreeMap<&'a str, Inflight>,
    lost: &'a BTreeMap<Name, u64>,
    failed_collections: u64,
    findings: Vec<String>,
    /// Only for past windows.
    #[serde(skip_serializing_if = "Option::is_none")]
    slow: Option<&'a [SlowIo]>,
}

#[derive(Serialize)]
struct BlockJson<'a> {
    device: Option<&'a str>,
    op: Option<&'a str>,
    /// The persistent volume and its devices, for `--by claim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    persistent_volume: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<&'a str>>,
    ios: u64,
    bytes: u64,
    errors: &'a BTreeMap<Name, u64>,
    unseen: &'a BTreeMap<Group, u64>,
    /// By phase. `None` for admission if the kernel does not record it.
    latency: BTreeMap<&'static str, Option<LatencyJson>>,
}

#[derive(Serialize)]
struct LatencyJson {
    count: u64,
    seconds: f64,
    p50: Option<f64>,
    p90: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
    /// Lower bound, upper bound, count. The overflow bucket's upper bound is `null`.
    buckets: Vec<(f64, Option<f64>, u64)>,
}

/// Returns the line with its newline. For past windows, it includes the slowest I/Os.
pub(super) fn line(
    window: &Window,
    host: &str,
    breakdown: &Breakdown,
    slow: Option<&[SlowIo]>,
) -> Result<String> {
    let blocks = breakdown.blocks(window);
    let latency = |block: &Block<'_>| -> BTreeMap<&'static str, Option<LatencyJson>> {
        let latency = |phase| {
            let is_unknown = phase == Phase::Admission && !block.has(phase, window);
            (!is_unknown).then(|| LatencyJson::of(block.figures.of(phase)))
        };
        Phase::ALL.map(|phase| (phase.name(), latency(phase))).into()
    };
    let inflight = window.devices.iter().map(|device| (device.name.as_str(), device.inflight));
    let line = WindowJson {
        ended: window.ended,
        seconds: window.seconds,
        host,
        restarted: window.restarted,
        blocks: blocks
            .iter()
            .map(|block| BlockJson {
                device: block.device.map(|device| device.name.as_str()),
                op: block.op,
                persistent_volume: block.claim.as_ref().map(|claim| claim.volume),
                devices: block.claim.as_ref().map(Claim::device_names),
                ios: block.figures.ios(),
                bytes: block.figures.bytes,
                errors: &block.figures.errors,
                unseen: &block.unseen,
                latency: latency(block),
            })
            .collect(),
        sizes: breakdown.sizes.then(|| sizes::sizes(window)),
        cpus: breakdown.cpus.as_ref().map(|_| sizes::cpus(window)),
        who: breakdown.who.then(|| who::workloads(window)),
        inflight: inflight.filter(|(_, inflight)| !inflight.is_none()).collect(),
        lost: &window.lost,
        failed_collections: window.failures,
        findings: findings::findings(window, NumberFormat::UNICODE),
        slow,
    };
    json_line(&line)
}

impl LatencyJson {
    fn of(histogram: &Histogram) -> Self {
        Self::new(histogram, histogram.ranges(), |share| histogram.percentile(share))
    }

    fn of_band(band: &BandHistogram) -> Self {
        Self::new(band.at_most_schema_1(), band.ranges(), |share| band.percentile(share))
    }

    fn new(
        histogram: &Histogram,
        ranges: impl Iterator<Item = (Bounds, u64)>,
        percentile: impl Fn(f64) -> Option<Bounds>,
    ) -> Self {
        let at = |share| percentile(share).map(number);
        let buckets = ranges.map(|(bounds, count)| {
            (bounds.lower, Some(bounds.upper).filter(|upper| upper.is_finite()), count)
        });
        Self {
            count: histogram.count(),
            seconds: histogram.sum_seconds(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: at(1.0),
            buckets: buckets.collect(),
        }
    }
}

/// The bucket's midpoint, or the bound of the zero or overflow bucket.
fn number(bounds: Bounds) -> f64 {
    bounds.middle().unwrap_or(if bounds.lower == 0.0 { bounds.upper } else { bounds.lower })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_common::series::Phase;
    use biolat_model::snapshot::{DeviceView, Inflight};
    use biolat_testing::samples;
    use serde_json::{Value, json};

    use crate::json_line;

    fn line(devices: Vec<DeviceView>) -> Value {
        serde_json::from_str(&json_line(&samples::snapshot(1.0, vec![]), &samples::snapshot(6.0, devices)))
            .unwrap()
    }

    #[test]
    fn inflight_is_by_device() {
        let device = |name, read| DeviceView {
            inflight: Inflight {
                reads: read,
                writes: 0,
                oldest: Duration::from_secs_f64(read as f64 * 4.0),
                is_exact: true,
            },
            ..samples::device(name, 9.0, vec![])
        };
        let found = line(vec![device("sda", 0), device("sdb", 4)]);
        let inflight = json!({"read": 4, "write": 0, "oldest_seconds": 16.0, "exact": true});
        assert_eq!(found["inflight"], json!({"sdb": inflight}));
        assert_eq!(
            found["findings"],
            json!(["sdb: 4 I/Os in flight, none completed in 5 s, the oldest for 16 s."])
        );
        assert_eq!(line(vec![samples::device("sda", 9.0, vec![])])["inflight"], json!({}));
    }

    #[test]
    fn an_unrecorded_phase_is_null() {
        let none = || samples::histogram(0, &[], 0, 0.0);
        let op = || samples::op("read", 0, none(), none(), samples::histogram(0, &[(-80, 9)], 0, 0.1));
        let mut sda = samples::device("sda", 9.0, vec![op()]);
        assert_eq!(line(vec![sda.clone()])["blocks"][0]["latency"]["admission"]["count"], 0);
        sda.phases[Phase::Admission as usize] = false;
        let latency = &line(vec![sda])["blocks"][0]["latency"];
        assert_eq!((&latency["admission"], &latency["queue"]["count"]), (&Value::Null, &json!(0)));
    }
}
