//! The I/O of a window by size, and by the CPU that completes it.

use std::collections::BTreeMap;

use biolat_common::size::{BAND_NAMES, TOP_EXPONENT, ZERO_EXPONENT};
use biolat_model::size_histogram::SizeHistogram;
use serde::Serialize;

use super::LatencyJson;
use crate::window::Window;

#[derive(Serialize)]
pub(super) struct SizesJson<'a> {
    device: &'a str,
    op: &'a str,
    /// Lower bound, upper bound, count, in bytes. The overflow bucket's upper bound is `null`.
    requests: Vec<(u64, Option<u64>, u64)>,
    bands: Vec<BandJson>,
}

#[derive(Serialize)]
struct BandJson {
    size: &'static str,
    #[serde(flatten)]
    latency: LatencyJson,
}

/// The sizes for each device and op with requests whose size was counted.
pub(super) fn sizes(window: &Window) -> Vec<SizesJson<'_>> {
    let ops = window.devices.iter().flat_map(|device| device.ops.iter().map(move |op| (device, op)));
    ops.filter_map(|(device, op)| {
        let sizes = op.sizes.as_ref().filter(|sizes| sizes.requests.count() > 0)?;
        let bands = sizes.busy().map(|(band, latencies)| BandJson {
            size: BAND_NAMES[band],
            latency: LatencyJson::of_band(latencies),
        });
        Some(SizesJson {
            device: &device.name,
            op: &op.name,
            requests: requests(&sizes.requests),
            bands: bands.collect(),
        })
    })
    .collect()
}

/// Completed requests per CPU, for devices that completed any.
pub(super) fn cpus(window: &Window) -> BTreeMap<&str, &[u64]> {
    let devices = window
        .devices
        .iter()
        .filter_map(|device| Some((device.name.as_str(), device.completions.as_deref()?)));
    devices.filter(|(_, counts)| counts.iter().any(|count| *count > 0)).collect()
}

fn requests(sizes: &SizeHistogram) -> Vec<(u64, Option<u64>, u64)> {
    let between = sizes.buckets.iter().map(|&(index, count)| (1 << (index - 1), Some(1 << index), count));
    let all = std::iter::once((0, Some(1 << ZERO_EXPONENT), sizes.zero)).chain(between);
    all.chain([(1 << TOP_EXPONENT, None, sizes.overflow)]).filter(|(.., count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use biolat_testing::samples;
    use serde_json::{Value, json};

    use crate::{breakdown::Breakdown, json, json_line, window::Window};

    fn window() -> Window {
        let none = || samples::histogram(0, &[], 0, 0.0);
        let mut op = samples::op("read", 0, none(), none(), samples::histogram(0, &[(-80, 4)], 0, 0.1));
        op.sizes = Some(samples::sizes(&[("le_16KiB", &[(13, 1), (14, 3)], 1.0)]));
        let mut sda = samples::device("sda", 9.0, vec![op]);
        sda.spread.completions = vec![0, 4];
        let (before, after) = (samples::snapshot(1.0, vec![]), samples::snapshot(6.0, vec![sda]));
        assert!(json_line(&before, &after).contains(r#""sizes":[{"#));
        Window::between(&before, &after)
    }

    #[test]
    fn writes_sizes_and_cpus() {
        let window = window();
        let line: Value = serde_json::to_value(super::sizes(&window)).unwrap();
        let middle = (0.5_f64.sqrt()).sqrt();
        let expected = json!([{
            "device": "sda",
            "op": "read",
            "requests": [[4096, 8192, 1], [8192, 16384, 3]],
            "bands": [{
                "size": "le_16KiB",
                "count": 4,
                "seconds": 4.0,
                "p50": middle,
                "p90": middle,
                "p99": middle,
                "p999": middle,
                "max": middle,
                "buckets": [[0.5_f64.sqrt(), 1.0, 4]],
            }],
        }]);
        assert_eq!(line, expected);
        assert_eq!(json!(super::cpus(&window)), json!({"sda": [0, 4]}));
    }

    #[test]
    fn sizes_and_cpus_are_optional() {
        let line = |sizes: bool, cpus: bool| -> Value {
            let cpus = cpus.then(Default::default);
            let breakdown = Breakdown { sizes, cpus, ..Breakdown::default() };
            serde_json::from_str(&json::line(&window(), "db1", &breakdown, None).unwrap()).unwrap()
        };
        for (sizes, cpus) in [(false, false), (true, false), (false, true)] {
            let line = line(sizes, cpus);
            assert_eq!((line.get("sizes").is_some(), line.get("cpus").is_some()), (sizes, cpus), "{line}");
        }
    }
}
