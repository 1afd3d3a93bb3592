//! The common case: a whole, successful, stamped request of a series that the table knows, not unusually slow. No
//! helper but the clock, no write outside this CPU's own counters. Whatever is otherwise is left, untouched, to
//! `rare_case`.

use biolat_common::{bucket::USUAL_LIMIT_NS, series::Key};

use crate::{
    maps, record,
    request::{Completion, is_plain},
};

/// Records the completion; `false` if it is not a common one and nothing was recorded.
#[inline(always)]
pub(crate) fn record(completion: &Completion, now: u64) -> bool {
    if completion.status != 0
        || !is_plain(completion.flags())
        || completion.bytes == 0
        || completion.bytes < completion.remaining_bytes()
    {
        return false;
    }
    let started = completion.started();
    let handed_over = completion.handed_over();
    if started == 0 || handed_over == 0 {
        return false;
    }
    let Some(slot) = maps::known_slot(Key::new(completion.device(), completion.op())) else { return false };
    let Some(series) = maps::series(slot) else { return false };
    // SAFETY: this CPU's own counters; see `maps::series`.
    let series = unsafe { &mut *series };
    // Each is very large if a stamp lies in the future.
    if (now.wrapping_sub(started) | now.wrapping_sub(handed_over)) >= USUAL_LIMIT_NS {
        return false;
    }
    series.bytes = series.bytes.wrapping_add(u64::from(completion.bytes));
    record::split(series, started, handed_over, now);
    true
}
