//! The I/O of a window by process, as one line.

use std::collections::BTreeMap;

use anyhow::Result;
use biolat_collect::processes::ProcessWindow;
use biolat_model::{name::Name, text::time::unix_seconds};
use serde::Serialize;

use super::LatencyJson;
use crate::{
    output::json_line,
    process_figures::{DeviceProcesses, ProcessFigures},
};

#[derive(Serialize)]
struct WindowJson<'a> {
    ended: f64,
    seconds: f64,
    host: &'a str,
    processes: Vec<ProcessJson<'a>>,
    lost: &'a BTreeMap<Name, u64>,
}

#[derive(Serialize)]
struct ProcessJson<'a> {
    device: &'a str,
    pid: u32,
    name: &'a str,
    kernel: bool,
    share: f64,
    depth: f64,
    #[serde(flatten)]
    all: FiguresJson,
    ops: BTreeMap<&'a str, FiguresJson>,
}

#[derive(Serialize)]
struct FiguresJson {
    ios: u64,
    bytes: u64,
    errors: u64,
    device_seconds: f64,
    latency: LatencyJson,
}

impl From<&ProcessFigures> for FiguresJson {
    fn from(figures: &ProcessFigures) -> Self {
        Self {
            ios: figures.ios(),
            bytes: figures.bytes,
            errors: figures.errors,
            device_seconds: figures.seconds(),
            latency: LatencyJson::of_band(&figures.latency),
        }
    }
}

/// Returns the line with its newline. The processes of a device are in order of their share.
pub(crate) fn line(window: &ProcessWindow, devices: &[DeviceProcesses<'_>], host: &str) -> Result<String> {
    let seconds = window.length.as_secs_f64();
    let rows = devices.iter().flat_map(|device| device.rows.iter().map(|row| (device.device, row)));
    let processes = rows.map(|(device, row)| ProcessJson {
        device,
        pid: row.process.pid,
        name: &row.process.name,
        kernel: row.process.is_kernel,
        share: row.share,
        depth: row.all.seconds() / seconds,
        all: (&row.all).into(),
        ops: row.ops.iter().map(|(&op, figures)| (op, figures.into())).collect(),
    });
    json_line(&WindowJson {
        ended: unix_seconds(window.ended),
        seconds,
        host,
        processes: processes.collect(),
        lost: &window.lost,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::process_figures::{by_device, tests::window};

    #[test]
    fn writes_each_process() {
        let window = window();
        let line: Value =
            serde_json::from_str(&super::line(&window, &by_device(&window), "db1").unwrap()).unwrap();
        let first = &line["processes"][0];
        for (field, value) in [
            ("device", json!("sda")),
            ("pid", json!(1)),
            ("name", json!("p1")),
            ("kernel", json!(false)),
            ("share", json!(0.5)),
            ("ios", json!(150)),
            ("bytes", json!(150 * 4096)),
        ] {
            assert_eq!(first[field], value, "{field}");
        }
        assert!((first["depth"].as_f64().unwrap() - 0.04).abs() < 1e-9, "{first}");
        assert_eq!((&first["ops"]["read"]["ios"], &first["latency"]["count"]), (&json!(100), &json!(150)));
        assert_eq!(
            (&line["host"], &line["seconds"], &line["lost"]),
            (&json!("db1"), &json!(5.0), &json!({"recursion": 2}))
        );
    }
}
