//! Devices that are slower than others of their model.

use std::collections::HashMap;

use super::{MINIMUM_FOR_P99, drive_latency};
use crate::{
    format::NumberFormat,
    report::window::{DeviceWindow, Window},
};

/// How many times slower than its siblings a device is, to be reported.
const SLOWER: f64 = 3.0;

/// A difference that does not matter.
const SMALL_DIFFERENCE: f64 = 500e-6;

/// 99th percentiles by device and op, where there are enough I/Os for one.
pub(super) type P99s<'a> = HashMap<(&'a str, &'a str), f64>;

pub(super) fn p99s(window: &Window) -> P99s<'_> {
    let ops = window.devices.iter().flat_map(|device| device.ops.iter().map(move |op| (device, op)));
    ops.filter_map(|(device, op)| {
        let latencies = drive_latency(device, &op.figures);
        let is_enough = latencies.count() >= MINIMUM_FOR_P99;
        let p99 = latencies.percentile(0.99).filter(|_| is_enough)?.middle()?;
        Some(((device.name.as_str(), op.name.as_str()), p99))
    })
    .collect()
}

/// Compares reads with reads and writes with writes, with the median of the siblings.
pub(super) fn slower(
    device: &DeviceWindow,
    window: &Window,
    p99s: &P99s<'_>,
    numbers: NumberFormat,
) -> Option<String> {
    let is_other = |other: &&DeviceWindow| other.name != device.name && is_sibling(device, other);
    let siblings: Vec<_> = window.devices.iter().filter(is_other).collect();
    let compare = |op: &str| {
        let p99 = |device: &DeviceWindow| p99s.get(&(device.name.as_str(), op)).copied();
        let own = p99(device)?;
        let mut others: Vec<_> = siblings.iter().filter_map(|sibling| p99(sibling)).collect();
        others.sort_by(f64::total_cmp);
        let median = *others.get(others.len() / 2)?;
        (own >= SLOWER * median && own - median >= SMALL_DIFFERENCE).then(|| {
            let (of, whose) = match others.len() {
                1 => ("the other device".to_owned(), "its"),
                count => (format!("{count} other devices"), "their median of"),
            };
            format!(
                "{}: its {op}s are slower than those of {of} of its {}: p99 {}, {:.0} times {whose} {}.",
                device.name,
                if device.model.is_empty() { "kind" } else { "model" },
                numbers.latency(own),
                own / median,
                numbers.latency(median)
            )
        })
    };
    ["read", "write"].into_iter().find_map(compare)
}

/// Of the same model; without a model, of the same kind: driver, and rotating or not.
fn is_sibling(device: &DeviceWindow, other: &DeviceWindow) -> bool {
    if device.model.is_empty() {
        other.model.is_empty()
            && driver(&device.name) == driver(&other.name)
            && device.rotational == other.rotational
    } else {
        device.model == other.model
    }
}

/// The part of a device's name that its driver gives: up to the first digit, or to the letters of the drive.
fn driver(name: &str) -> &str {
    let lettered = ["xvd", "vd", "sd", "hd"].into_iter().find(|driver| name.starts_with(driver));
    lettered.unwrap_or_else(|| name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default())
}
