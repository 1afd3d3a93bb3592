//! Latencies that are long in absolute terms, regardless of other devices.

use biolat_common::series::Phase;
use biolat_model::text::format::{self, NumberFormat};

use super::{
    evidence::{MINIMUM, MINIMUM_FOR_P99, drive_latency},
    words::{counted, plural},
};
use crate::{
    bimodal,
    window::{DeviceWindow, OpWindow, Window},
};

/// Above this share, I/O waits longer than the device works on it.
const WAIT_SHARE: f64 = 0.5;

/// A mean wait too short to matter.
const SHORT_WAIT: f64 = 100e-6;

/// The bucket that ends at 1 s: longer latencies are stalls.
const STALL: i32 = 0;

/// Minimum number of reads or writes needed to judge their median: a slow device completes few.
const MINIMUM_FOR_MEDIAN: u64 = 10;

/// A median seen only on failing or overloaded devices.
const SLOW_MEDIAN: f64 = 0.1;

/// Ops other than these can take a long time on a healthy device.
fn reads_and_writes(device: &DeviceWindow) -> impl Iterator<Item = &OpWindow> {
    device.ops.iter().filter(|op| matches!(op.name.as_str(), "read" | "write"))
}

pub(super) fn stalls(device: &DeviceWindow, numbers: NumberFormat) -> Vec<String> {
    let stalled = reads_and_writes(device).filter_map(|op| {
        let total = op.figures.of(Phase::Total);
        let long = total.overflow.saturating_add(total.count_in(STALL + 1..));
        let max = total.max().filter(|_| long > 0)?;
        let longest = numbers.latency(max.middle().unwrap_or(max.lower));
        let count = counted(long, &op.name);
        Some(format!("{}: {count} took longer than 1 s, the longest {longest}.", device.name))
    });
    stalled.collect()
}

pub(super) fn slow(device: &DeviceWindow, numbers: NumberFormat) -> Vec<String> {
    let slow = reads_and_writes(device).filter_map(|op| {
        let total = op.figures.of(Phase::Total);
        let median = total.percentile(0.5).filter(|median| median.lower >= SLOW_MEDIAN)?;
        (total.count() >= MINIMUM_FOR_MEDIAN).then(|| {
            format!(
                "{}: half of its {} took {} or longer (total latency).",
                device.name,
                counted(total.count(), &op.name),
                numbers.latency(median.middle().unwrap_or(median.lower))
            )
        })
    });
    slow.collect()
}

pub(super) fn admission(device: &DeviceWindow, numbers: NumberFormat) -> Option<String> {
    let all = device.all();
    let share = all.admission_share()?;
    let (wait, total) = (all.of(Phase::Admission).mean()?, all.of(Phase::Total).mean()?);
    let matters = all.of(Phase::Admission).count() >= MINIMUM && share > WAIT_SHARE && wait >= SHORT_WAIT;
    matters.then(|| {
        format!(
            "{}: {} of the time is spent before a request exists (mean {}; total latency after that {}): throttled \
             (writeback, io.cost, io.latency), or all tags in use.",
            device.name,
            format::share(share),
            numbers.latency(wait),
            numbers.latency(total)
        )
    })
}

pub(super) fn queue(device: &DeviceWindow, numbers: NumberFormat) -> Option<String> {
    let all = device.all();
    let (queue, drive) = (all.of(Phase::Queue), all.of(Phase::Device));
    let share = all.queue_share()?;
    let (wait, work) = (queue.mean()?, drive.mean()?);
    let matters = drive.count() >= MINIMUM && share > WAIT_SHARE && wait >= SHORT_WAIT;
    matters.then(|| {
        format!(
            "{}: {} of the total latency is time in the queue (mean {}; in the device {}): the device gets more I/O than \
             it can handle, or its I/O scheduler delays it.",
            device.name,
            format::share(share),
            numbers.latency(wait),
            numbers.latency(work)
        )
    })
}

pub(super) fn bimodal(device: &DeviceWindow, numbers: NumberFormat) -> Vec<String> {
    let found = device.ops.iter().filter_map(|op| {
        let [fast, slow] = bimodal::modes(drive_latency(device, &op.figures))?;
        Some(format!(
            "{}: {} have two typical latencies: {} near {}, {} near {}, and hardly any in between, as if a cache served \
             some of them.",
            device.name,
            plural(&op.name),
            format::share(fast.share),
            numbers.latency(fast.peak),
            format::share(slow.share),
            numbers.latency(slow.peak)
        ))
    });
    found.collect()
}

/// By total latency: that is how long applications wait once the request is allocated.
pub(super) fn slowest(window: &Window, numbers: NumberFormat) -> Option<String> {
    let p99 = |device: &DeviceWindow| {
        let all = device.all();
        let total = all.of(Phase::Total);
        let is_enough = total.count() >= MINIMUM_FOR_P99;
        Some((total.percentile(0.99).filter(|_| is_enough)?.middle()?, total.count()))
    };
    let mut all: Vec<_> =
        window.devices.iter().filter_map(|device| Some((p99(device)?, &device.name))).collect();
    all.sort_by(|((a, _), _), ((b, _), _)| b.total_cmp(a));
    let [((slow, ios), name), .., ((fast, _), _)] = all[..] else { return None };
    (slow > fast).then(|| {
        format!(
            "The slowest of {} devices with {MINIMUM_FOR_P99} I/Os or more is {name}: p99 {} of {} I/Os (total latency).",
            all.len(),
            numbers.latency(slow),
            format::count(ios)
        )
    })
}
