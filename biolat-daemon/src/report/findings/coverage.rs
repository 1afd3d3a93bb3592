//! Latencies that are not recorded, and completions that are in no histogram.

use super::{MINIMUM, counted};
use crate::{
    format, losses,
    report::window::{DeviceWindow, Window},
};

/// The share of all completions that the probe may miss: on CPUs that idle, it misses a few.
const MISSED_SHARE: f64 = 0.01;

pub(super) fn missing_latency(device: &DeviceWindow) -> Option<String> {
    (device.all().ios() > 0 && !device.hint.is_empty()).then(|| format!("{}.", device.hint))
}

pub(super) fn missed(device: &DeviceWindow) -> Option<String> {
    let missed: u64 = device.unseen.values().sum();
    let all = missed + device.all().ios();
    (all >= MINIMUM && missed as f64 > all as f64 * MISSED_SHARE).then(|| {
        format!(
            "{}: the kernel did not run the probe for {} of {} I/Os ({}): they are in no histogram.",
            device.name,
            format::count(missed),
            format::count(all),
            format::share(missed as f64 / all as f64)
        )
    })
}

pub(super) fn losses(window: &Window) -> Vec<String> {
    let lost = window.lost.iter().filter(|(reason, _)| !losses::is_expected(reason));
    let lost = lost.map(|(reason, count)| {
        let are = if *count == 1 { "is" } else { "are" };
        let completions = counted(*count, "completion");
        format!("{completions} {are} in no histogram ({reason}): {}.", losses::meaning(reason))
    });
    lost.collect()
}
