//! Devices that fail, hang, or are gone.

use super::counted;
use crate::{
    format,
    report::window::{DeviceWindow, Window},
};

/// I/O that does not complete is in no histogram: such a device would look idle.
pub(super) fn hang(device: &DeviceWindow, seconds: f64) -> Option<String> {
    let hangs = device.inflight > 0 && device.all().ios() == 0;
    let (inflight, they) = match device.inflight {
        1 => ("1 is".to_owned(), "it was"),
        many => (format!("{} are", format::count(many)), "they were"),
    };
    hangs.then(|| {
        format!(
            "{}: no I/O completed in {}, and {inflight} in flight: the device hangs, or {they} only just submitted.",
            device.name,
            format::duration(seconds)
        )
    })
}

pub(super) fn errors(device: &DeviceWindow) -> Vec<String> {
    let failed = device.ops.iter().flat_map(|op| {
        let errors = op.figures.errors.iter();
        errors.map(|(status, count)| {
            format!("{}: {} failed ({status}).", device.name, counted(*count, &op.name))
        })
    });
    failed.collect()
}

pub(super) fn removed(window: &Window) -> Vec<String> {
    let removed = window.gone.iter();
    removed.map(|name| format!("{name} was removed: its I/O is not in this summary.")).collect()
}
