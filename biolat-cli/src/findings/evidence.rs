//! The latency on which the findings are based, and the least number of I/Os.

use biolat_common::series::Phase;
use biolat_model::histogram::Histogram;

use crate::window::{DeviceWindow, Figures};

/// Minimum number of I/Os to draw conclusions about a device.
pub(super) const MINIMUM: u64 = 100;

/// Minimum number of I/Os to compare 99th percentiles.
pub(super) const MINIMUM_FOR_P99: u64 = 500;

/// The device latency if recorded, otherwise the total.
pub(super) fn drive_latency<'a>(device: &DeviceWindow, figures: &'a Figures) -> &'a Histogram {
    let phase = if device.has(Phase::Device) { Phase::Device } else { Phase::Total };
    figures.of(phase)
}
