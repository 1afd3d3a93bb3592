//! Everything that a completion can be: slower, out of the way, and complete. It could record every request.

use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use biolat_common::{
    lost::Reason,
    series::{Key, Series},
    status::{STATUSES, from_errno},
};

use crate::{
    maps, record,
    request::{Completion, is_booked, is_flush, is_in_flush_sequence, is_passthrough, status_is_errno},
};

/// What the kernel's books make of a completion, and so do we.
enum Meaning {
    /// The end of a request.
    End,
    /// A part of a request: its bytes count, the request does not end.
    Part,
    /// The kernel neither stamps nor books it.
    Unbooked,
    /// The second time that a request comes here after its end.
    Repetition,
}

#[inline(never)]
pub(crate) fn record(ctx: &BtfTracePointContext, now: u64) {
    let completion = Completion::from_arguments(ctx);
    let op = completion.op();
    let device = completion.device();
    let meaning = meaning(&completion, op);

    match meaning {
        Meaning::Unbooked => {
            maps::lose(if is_passthrough(op) { Reason::Passthrough } else { Reason::IostatsOff });
            return;
        }
        Meaning::Repetition => return,
        Meaning::End | Meaning::Part => {}
    }
    if device == 0 {
        maps::lose(Reason::NoDisk);
        return;
    }
    let Some(series) = maps::any_slot(Key::new(device, op)).and_then(maps::series) else {
        if let Meaning::End = meaning {
            let lost = maps::lose(Reason::NoRoom);
            // Each time that they have doubled: however many there are, the daemon hears of some, and of few.
            if lost.is_power_of_two() {
                warn!(ctx, "{}", Key::new(device, op).bits());
            }
        }
        return;
    };
    // SAFETY: this CPU's own counters; see `maps::series`.
    let series = unsafe { &mut *series };

    // A step of a flush sequence that fails ends the sequence, and the request says so at its own end.
    if completion.status != 0 && (is_flush(op) || !is_in_flush_sequence(completion.flags())) {
        count_error(series, completion.status);
    }
    series.bytes = series.bytes.wrapping_add(u64::from(completion.bytes));
    if let Meaning::End = meaning {
        record_latency(series, &completion, now);
    }
}

/// `blk_account_io_done()` and `blk_account_io_flush()` say what is booked, and when.
///
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-mq.c#L974>
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-flush.c#L126>
#[inline(always)]
fn meaning(completion: &Completion, op: u32) -> Meaning {
    let flags = completion.flags();
    if is_in_flush_sequence(flags) && is_flush(op) {
        // The flush request itself, booked whatever `queue/iostats` says.
        return Meaning::End;
    }
    if !is_booked(flags) {
        return Meaning::Unbooked;
    }
    let remaining = completion.remaining_bytes();
    if is_in_flush_sequence(flags) || completion.bytes < remaining {
        return Meaning::Part;
    }
    if remaining == 0 && !is_passthrough(op) && !completion.has_bio() {
        // Request-based dm ends its request when the clone has moved all bytes, and then once more, with none
        // left: https://github.com/torvalds/linux/blob/v6.12/drivers/md/dm-rq.c#L76. What ends without bytes in
        // its own right, an empty flush or a flush sequence, still has its bio.
        return Meaning::Repetition;
    }
    Meaning::End
}

#[inline(always)]
fn record_latency(series: &mut Series, completion: &Completion, now: u64) {
    let started = completion.started();
    let handed_over = completion.handed_over();
    if started == 0 {
        // Booked but not stamped: passthrough between 6.8 and 6.12.
        maps::lose(if is_passthrough(completion.op()) { Reason::Passthrough } else { Reason::IostatsOff });
    } else if started > now || handed_over > now {
        maps::lose(Reason::Clock);
    } else if handed_over == 0 {
        record::unsplit(series, now - started);
    } else {
        let waited = handed_over.saturating_sub(started);
        record::split_any(series, waited, now - started - waited);
    }
}

#[inline(always)]
fn count_error(series: &mut Series, status: i32) {
    let status = if status_is_errno() { from_errno(status) } else { status.cast_unsigned() as usize };
    let errors = &mut series.errors[if status < STATUSES { status } else { STATUSES - 1 }];
    *errors = errors.wrapping_add(1);
}
