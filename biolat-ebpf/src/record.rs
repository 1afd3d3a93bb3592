//! Adds a completion to the counters of its series and workload.

use biolat_common::{
    bucket::{LIMIT_NS, cell, common_cell, positive},
    series::{Phase, Series},
    size::{self, Place, Sizes},
    workload::Entry,
};

use crate::{in_place::in_place, maps::EntryPointer};

/// Records the three phases of a request whose timestamps are both less than [`biolat_common::bucket::COMMON_LIMIT_NS`] old;
/// returns the device latency.
///
/// A task with a plug caches the block layer's clock (`plug->cur_ktime`), and another task may dispatch the request, so
/// `issued_at` may be slightly earlier than `allocated_at`. The queue latency is then 0. A cached allocation time makes the total
/// longer. Queue and device always add up to the total.
#[inline(always)]
pub(crate) fn common_phases(
    series: &mut Series,
    entry: Option<EntryPointer>,
    bytes: u32,
    allocated_at: u64,
    issued_at: u64,
    now: u64,
) -> u64 {
    let queue = positive(issued_at.wrapping_sub(allocated_at));
    let total = now.wrapping_sub(allocated_at);
    let device = total.wrapping_sub(queue);
    let total_cell = common_cell(total);
    match entry {
        Some(entry) => {
            // SAFETY: this CPU's own entry, see `maps::workload`.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.bytes = entry.bytes.wrapping_add(u64::from(bytes));
            entry.queue_ns = entry.queue_ns.wrapping_add(queue);
            entry.device_ns = entry.device_ns.wrapping_add(device);
            count_total(entry, total_cell);
        }
        None => {
            series.bytes = series.bytes.wrapping_add(u64::from(bytes));
            series.queue_ns = series.queue_ns.wrapping_add(queue);
            series.device_ns = series.device_ns.wrapping_add(device);
        }
    }
    count(series, Phase::Queue, common_cell(queue));
    count(series, Phase::Device, common_cell(device));
    count(series, Phase::Total, total_cell);
    device
}

#[inline(always)]
fn count_total(entry: &mut Entry, cell: usize) {
    let count = &mut entry.cells[size::band_cell(cell)];
    *count = count.wrapping_add(1);
}

/// Counts the size of a request of 1 to [`size::COMMON_LIMIT`] bytes whose device latency is less than
/// [`biolat_common::bucket::COMMON_LIMIT_NS`].
#[inline(always)]
pub(crate) fn common_size(sizes: &mut Sizes, bytes: u32, device: u64) {
    count_size(sizes, size::common_place(bytes), device, common_cell(device));
}

/// The latency with which a request is counted in its size band: the device latency if known, otherwise the total.
#[derive(Clone, Copy)]
pub(crate) enum Latency {
    Device(u64),
    /// For a request without a dispatch timestamp.
    Total(u64),
}

/// Counts the size of any request. Sizes of up to 256 bytes belong to no band. Only passthrough commands and empty flushes are
/// that small; the kernel accounts an empty flush as a write and never dispatches it.
#[inline(always)]
pub(crate) fn any_size(sizes: &mut Sizes, bytes: u32, latency: Latency) {
    let place = size::place(bytes);
    if place.cell() == 0 {
        sizes.requests[0] = sizes.requests[0].wrapping_add(1);
        return;
    }
    let ns = match latency {
        Latency::Device(ns) => ns,
        Latency::Total(ns) => {
            sizes.undispatched = sizes.undispatched.wrapping_add(1);
            ns
        }
    };
    count_size(sizes, place, ns, cell(in_range(ns)));
}

/// The indices are always in range, but the verifier does not know the values in the tables and requires comparisons.
#[inline(always)]
fn count_size(sizes: &mut Sizes, place: Place, device: u64, latency_cell: usize) {
    let place = place.map(with_unknown_range);
    if let Some(requests) = sizes.requests.get_mut(place.cell())
        && let Some(latencies) = sizes.bands.get_mut(place.band())
        && let Some(ns) = sizes.band_ns.get_mut(place.band())
    {
        *requests = requests.wrapping_add(1);
        *ns = ns.wrapping_add(device);
        let count = &mut latencies[size::band_cell(latency_cell)];
        *count = count.wrapping_add(1);
    }
}

/// Records an admission latency in the zero bucket. Nearly all of them are in it, and finding its cell needs no arithmetic.
#[inline(always)]
pub(crate) fn zero_admission(series: &mut Series, admission: u64) {
    series.admission_ns = series.admission_ns.wrapping_add(admission);
    count(series, Phase::Admission, 0);
}

/// Records an admission latency of less than [`biolat_common::bucket::COMMON_LIMIT_NS`].
#[inline(always)]
pub(crate) fn common_admission(series: &mut Series, admission: u64) {
    series.admission_ns = series.admission_ns.wrapping_add(admission);
    count(series, Phase::Admission, common_cell(admission));
}

/// Records an admission latency of any length.
#[inline(always)]
pub(crate) fn admission(series: &mut Series, admission: u64) {
    series.admission_ns = series.admission_ns.wrapping_add(admission);
    count(series, Phase::Admission, cell(in_range(admission)));
}

/// Records the three phases, of any length, of a request with both timestamps.
///
/// This does not share the code for the sums with [`common_phases`]. If it did, the compiler would derive a bound for the sums
/// and remove a mask that the verifier needs.
#[inline(always)]
pub(crate) fn all_phases(series: &mut Series, entry: Option<EntryPointer>, queue: u64, device: u64) {
    let total_cell = cell(in_range(queue.wrapping_add(device)));
    match entry {
        Some(entry) => {
            // SAFETY: this CPU's own entry, see `maps::workload`.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.queue_ns = entry.queue_ns.wrapping_add(queue);
            entry.device_ns = entry.device_ns.wrapping_add(device);
            count_total(entry, total_cell);
        }
        None => {
            series.queue_ns = series.queue_ns.wrapping_add(queue);
            series.device_ns = series.device_ns.wrapping_add(device);
        }
    }
    count(series, Phase::Queue, cell(in_range(queue)));
    count(series, Phase::Device, cell(in_range(device)));
    count(series, Phase::Total, total_cell);
}

/// Records the total phase of a request without a dispatch timestamp.
#[inline(always)]
pub(crate) fn total_only(series: &mut Series, entry: Option<EntryPointer>, total: u64) {
    let total_cell = cell(in_range(total));
    match entry {
        Some(entry) => {
            // SAFETY: this CPU's own entry, see `maps::workload`.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.unsplit_ns = entry.unsplit_ns.wrapping_add(total);
            count_total(entry, total_cell);
        }
        None => series.unsplit_ns = series.unsplit_ns.wrapping_add(total),
    }
    count(series, Phase::Total, total_cell);
}

/// Counts the bytes of a completed request or part, and whether it failed.
#[inline(always)]
pub(crate) fn bytes(series: &mut Series, entry: Option<EntryPointer>, bytes: u32, has_failed: bool) {
    match entry {
        Some(entry) => {
            // SAFETY: this CPU's own entry, see `maps::workload`.
            let entry = unsafe { &mut *entry.as_ptr() };
            entry.bytes = entry.bytes.wrapping_add(u64::from(bytes));
            entry.errors = entry.errors.wrapping_add(u64::from(has_failed));
        }
        None => series.bytes = series.bytes.wrapping_add(u64::from(bytes)),
    }
}

/// Hides the range of a number from the compiler, which would otherwise remove comparisons that are always true.
#[inline(always)]
fn with_unknown_range(number: u8) -> u8 {
    in_place(u64::from(number)) as u8
}

#[inline(always)]
fn count(series: &mut Series, phase: Phase, cell: usize) {
    let cell = &mut series.cells[cell][phase as usize];
    *cell = cell.wrapping_add(1);
}

/// Clamps a latency to below [`LIMIT_NS`]. The overflow cell starts lower, so this changes no count; the sums are not clamped.
#[inline(always)]
fn in_range(ns: u64) -> u64 {
    if ns < LIMIT_NS { ns } else { LIMIT_NS - 1 }
}
