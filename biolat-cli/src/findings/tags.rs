//! Tasks that slept because no tag was free.

use biolat_model::text::format;

use super::evidence::MINIMUM;
use crate::window::{DeviceWindow, Window};

/// Sleeps per I/O from which the tags limit a device. Fewer can be due to a short burst.
const SHARE: f64 = 0.1;

pub(super) fn tag_waits(device: &DeviceWindow, window: &Window) -> Vec<String> {
    let Some(waits) = device.tag_waits else { return Vec::new() };
    let remedy = "submit fewer I/Os at once, or spread them over more drives";
    let more = format!("raise /sys/block/{}/queue/nr_requests, or {remedy}", device.name);
    let limit = (device.all().ios() as f64 * SHARE).max(MINIMUM as f64);
    // Reserved tags are for the driver's own commands.
    let pools = [("driver", waits.driver, remedy), ("scheduler", waits.scheduler, &more)];
    let limiting = pools.into_iter().filter(|(_, pool, _)| pool.waits as f64 >= limit);
    let texts = limiting.map(|(name, pool, remedy)| {
        format!(
            "{}: tasks slept {} times a second because none of the {} tags of its {name} (for each hardware queue) was free \
             for them. To avoid that, {remedy}.",
            device.name,
            format::count(window.rate(pool.waits).round().max(1.0) as u64),
            format::count(pool.tags)
        )
    });
    texts.collect()
}
