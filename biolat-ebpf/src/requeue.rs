//! Counts requests that return to the queue: because the driver was busy (perhaps before `blk_mq_start_request()`), for a retry
//! after an error, or, with request-based dm, to take another path.

use aya_ebpf::{EbpfContext as _, programs::BtfTracePointContext};
use biolat_common::series::Key;

use crate::{
    constants::field,
    maps::{self, Cpu, First},
    request::{Completion, is_plain},
};

/// Counts the requeue in the series of its request.
#[inline(always)]
pub(crate) fn count(ctx: &BtfTracePointContext) {
    // Not a branch: the compiler would add to the context's pointer, which the verifier rejects.
    let request =
        Completion::of_request(field!(u64, ctx.as_ptr().cast::<u8>(), requeue_request) as *const u8);
    let Some(device) = request.device().filter(|_| is_plain(request.flags())) else { return };
    let Some(slot) = maps::slot_or_new(Key::new(device, request.op())) else { return };
    let Some(series) = maps::series::<First>(Cpu::current(), slot) else { return };
    // SAFETY: this CPU's own counters, and only this program writes `requeues`; see `maps::series`.
    unsafe { (*series).requeues = (*series).requeues.wrapping_add(1) };
}
