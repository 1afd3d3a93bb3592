//! What stands out in a window, in sentences. Each rule requires a minimum number of I/Os, because a handful proves nothing.

mod coverage;
mod evidence;
mod inflight;
mod latency;
mod names;
mod noisy_neighbor;
mod siblings;
mod sizes;
mod stalled;
mod status;
mod tags;
#[cfg(test)]
mod tests;
mod volumes;
mod words;

use biolat_model::text::format::NumberFormat;

use super::window::{DeviceWindow, Window};
use evidence::MINIMUM;

pub(super) use coverage::missing_admission;
pub(super) use inflight::{inflight, overdue};
pub(super) use words::counted;

/// The findings: hangs first. The last one names the slowest device, or says that nothing stands out.
pub(super) fn findings(window: &Window, numbers: NumberFormat) -> Vec<String> {
    let p99s = siblings::P99s::of(window);
    let mut findings: Vec<_> =
        window.devices.iter().filter_map(|device| overdue(device, window.seconds)).collect();
    for device in &window.devices {
        findings.extend(status::errors(device));
        findings.extend(latency::stalls(device, numbers));
        findings.extend(latency::slow(device, numbers));
        findings.extend(names::common(device, window));
        findings.extend(latency::admission(device, numbers));
        findings.extend(tags::tag_waits(device, window));
        findings.extend(latency::queue(device, numbers));
        findings.extend(noisy_neighbor::noisy_neighbor(device, window, numbers));
        findings.extend(siblings::slower(device, &p99s, numbers));
        findings.extend(latency::bimodal(device, numbers));
        findings.extend(sizes::slow_band(device, numbers));
        findings.extend(coverage::missing_latency(device));
        findings.extend(coverage::missed(device));
    }
    for volume in &window.volumes {
        // What happens on a device below is said there.
        let below = volumes::below(volume, window);
        for rule in [
            &status::errors as &dyn Fn(&DeviceWindow) -> Vec<String>,
            &|device| latency::stalls(device, numbers),
            &|device| latency::slow(device, numbers),
        ] {
            if below.iter().all(|device| rule(device).is_empty()) {
                findings.extend(rule(volume));
            }
        }
        findings.extend(volumes::added(volume, window, numbers));
    }
    findings.extend(stalled::stalled(window, numbers));
    findings.extend(status::removed(window));
    findings.extend(coverage::losses(window));
    if findings.is_empty() {
        findings.push(nothing(window));
        findings.extend(missing_admission(&window.devices).map(|missing| format!("{missing}.")));
    }
    findings.extend(latency::slowest(window, numbers));
    findings
}

fn nothing(window: &Window) -> String {
    if window.devices.iter().chain(&window.volumes).all(|device| device.all().ios() < MINIMUM) {
        format!("No device completed {MINIMUM} I/Os: too few to draw conclusions.")
    } else {
        let knows_stalls = window.cgroups.iter().any(|cgroup| cgroup.stalled_seconds.is_some());
        let stalls = if knows_stalls {
            " No workload was found to wait for io.max."
        } else {
            " No latency includes waits for io.max: see the cgroup's io.pressure."
        };
        format!(
            "Nothing stands out: no hangs, errors or stalls; no device whose I/O mostly waits in the queue or before it; no device \
             slower than its siblings; no size slower than the others.{stalls}"
        )
    }
}
