//! Latencies that are not recorded, and completions that are in no histogram.

use biolat_common::series::Phase;
use biolat_model::{losses, saturating::sum, text::format};

use super::{evidence::MINIMUM, words::counted};
use crate::window::{DeviceWindow, Window};

/// Share of all completions that the probe may miss: it misses a few on idle CPUs.
const MISSED_SHARE: f64 = 0.01;

pub(super) fn missing_latency(device: &DeviceWindow) -> Option<String> {
    (device.all().ios() > 0 && !device.hint.is_empty()).then(|| format!("{}.", device.hint))
}

/// Maximum number of devices that are named individually.
const NAMES: usize = 3;

/// The busy devices whose admission phase is not recorded, and why.
pub(crate) fn missing_admission(devices: &[DeviceWindow]) -> Option<String> {
    let is_unknown = |device: &&DeviceWindow| device.has(Phase::Total) && !device.has(Phase::Admission);
    let devices: Vec<_> = devices.iter().filter(is_unknown).filter(|device| device.all().ios() > 0).collect();
    let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
    let names = match names.len() {
        0 => return None,
        1..=NAMES => names.join(", "),
        many => format!("{many} devices"),
    };
    Some(format!(
        "{names}: the wait before a request exists (throttling, wait for a tag) is not recorded: Linux 6.18 and later record \
         it only with io.latency or, except for throttling, with io.cost"
    ))
}

pub(super) fn missed(device: &DeviceWindow) -> Option<String> {
    let missed = sum(device.unseen.values());
    let all = missed.saturating_add(device.all().ios());
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
