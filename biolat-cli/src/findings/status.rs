//! Devices with errors, and removed devices.

use super::words::counted;
use crate::window::{DeviceWindow, Window};

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
