//! What is added to a series.

use biolat_common::{
    bucket::{LIMIT_NS, cell, usual_cell},
    series::{Phase, Series},
};

/// The phases of a request that the driver has had, and that took less than
/// [`biolat_common::bucket::USUAL_LIMIT_NS`] since either stamp.
///
/// The block layer caches its clock for a batch, so that a hand-over may be stamped a little before the
/// start: the request then waited not at all. Queue and device always add up to the total.
#[inline(always)]
pub(crate) fn split(series: &mut Series, started: u64, handed_over: u64, now: u64) {
    let waited = positive(handed_over.wrapping_sub(started));
    let total = now.wrapping_sub(started);
    let served = total.wrapping_sub(waited);
    series.queue_ns = series.queue_ns.wrapping_add(waited);
    series.device_ns = series.device_ns.wrapping_add(served);
    count(series, Phase::Queue, usual_cell(waited));
    count(series, Phase::Device, usual_cell(served));
    count(series, Phase::Total, usual_cell(total));
}

/// The phases of any request that has both stamps, however long it took. Spelled out beside [`split`]: made one, the
/// compiler knows too much of the sums and leaves out a mask that the verifier wants to see.
#[inline(always)]
pub(crate) fn split_any(series: &mut Series, waited: u64, served: u64) {
    series.queue_ns = series.queue_ns.wrapping_add(waited);
    series.device_ns = series.device_ns.wrapping_add(served);
    count(series, Phase::Queue, cell(in_range(waited)));
    count(series, Phase::Device, cell(in_range(served)));
    count(series, Phase::Total, cell(in_range(waited.wrapping_add(served))));
}

/// The total of a request of which the kernel knows nothing else.
#[inline(always)]
pub(crate) fn unsplit(series: &mut Series, total: u64) {
    series.unsplit_ns = series.unsplit_ns.wrapping_add(total);
    count(series, Phase::Total, cell(in_range(total)));
}

#[inline(always)]
fn count(series: &mut Series, phase: Phase, cell: usize) {
    let cell = &mut series.cells[cell][phase as usize];
    *cell = cell.wrapping_add(1);
}

/// Beyond [`LIMIT_NS`] everything is overflow anyway; the sums stay exact.
#[inline(always)]
fn in_range(ns: u64) -> u64 {
    if ns < LIMIT_NS { ns } else { LIMIT_NS - 1 }
}

/// A difference, or 0 where it is negative, without a branch.
#[inline(always)]
fn positive(difference: u64) -> u64 {
    difference & !((difference.cast_signed() >> 63).cast_unsigned())
}
