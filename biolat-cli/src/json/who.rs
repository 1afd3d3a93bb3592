//! The I/O of a window by workload.

use serde::Serialize;

use super::LatencyJson;
use crate::window::Window;

#[derive(Serialize)]
pub(super) struct WorkloadJson<'a> {
    device: &'a str,
    cgroup: &'a str,
    name: &'a str,
    share: f64,
    depth: f64,
    ios: u64,
    bytes: u64,
    errors: u64,
    queue_seconds: f64,
    device_seconds: f64,
    total: LatencyJson,
}

/// The workloads of each device, largest share of the device's time first.
pub(super) fn workloads(window: &Window) -> Vec<WorkloadJson<'_>> {
    let devices = window.devices.iter();
    let workloads = devices.flat_map(|device| {
        device.workloads.iter().flatten().map(move |workload| (device.name.as_str(), workload))
    });
    let workloads = workloads.map(|(device, workload)| WorkloadJson {
        device,
        cgroup: &workload.cgroup,
        name: &workload.name,
        share: workload.share,
        depth: window.rate(1) * workload.seconds,
        ios: workload.all.ios(),
        bytes: workload.all.bytes,
        errors: workload.all.errors,
        queue_seconds: workload.all.queue_seconds,
        device_seconds: workload.all.device_seconds,
        total: LatencyJson::of_band(&workload.all.total),
    });
    workloads.collect()
}

#[cfg(test)]
mod tests {
    use biolat_model::snapshot::Snapshot;
    use biolat_testing::samples::{self, usage, workload};
    use serde_json::{Value, json};

    use crate::{breakdown::Breakdown, json, json_line, window::Window};

    #[test]
    fn writes_each_workload() {
        let devices = vec![samples::device("sda", 9.0, vec![])];
        let slow = usage("sda", "read", 6, 1.0, 1.0);
        let after = Snapshot {
            workloads: Some(vec![
                workload("/a", vec![usage("sda", "write", 2, 0.0, 1.0)]),
                workload("/b", vec![slow]),
            ]),
            ..samples::snapshot(6.0, devices)
        };
        let before = samples::snapshot(1.0, vec![]);
        let line: Value = serde_json::from_str(&json_line(&before, &after)).unwrap();
        let [first, second] = [0, 1].map(|place| &line["who"][place]);
        for (field, value) in [
            ("device", json!("sda")),
            ("cgroup", json!("/b")),
            ("name", json!("/b")),
            ("share", json!(0.75)),
            ("ios", json!(6)),
            ("bytes", json!(6 * 4096)),
            ("errors", json!(0)),
            ("queue_seconds", json!(6.0)),
            ("device_seconds", json!(6.0)),
        ] {
            assert_eq!(first[field], value, "{field}");
        }
        assert!((first["depth"].as_f64().unwrap() - 1.2).abs() < 1e-9, "{first}");
        assert_eq!((&first["total"]["count"], &first["total"]["seconds"]), (&json!(6), &json!(12.0)));
        assert_eq!((&second["cgroup"], &second["share"]), (&json!("/a"), &json!(0.25)));
        let window = Window::between(&before, &after);
        let without = json::line(&window, "db1", &Breakdown::default(), None).unwrap();
        assert!(!without.contains(r#""who""#), "{without}");
    }
}
