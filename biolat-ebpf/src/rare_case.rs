//! Every completion that is not the common case. This code is out of line and complete: it could record every request.

use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use biolat_common::{
    lost::Reason,
    series::{Key, Series},
    status::{STATUSES, from_errno},
};

use crate::{
    maps, record,
    request::{Completion, is_accounted, is_flush, is_in_flush_sequence, is_passthrough, status_is_errno},
};

/// What a completion is to diskstats.
enum Meaning {
    /// The end of a request: one I/O.
    End,
    /// A part of a request: its bytes count, the request continues.
    Part,
    /// The kernel neither accounts the request nor sets its timestamps.
    NotAccounted,
    /// A second completion of a request that has already ended.
    Duplicate,
}

#[inline(never)]
pub(crate) fn record(ctx: &BtfTracePointContext, now: u64) {
    let completion = Completion::from_arguments(ctx);
    let op = completion.op();
    let device = completion.device();
    let meaning = meaning(&completion, op);

    match meaning {
        Meaning::NotAccounted => {
            maps::count_lost(if is_passthrough(op) { Reason::Passthrough } else { Reason::IostatsOff });
            return;
        }
        Meaning::Duplicate => return,
        Meaning::End | Meaning::Part => {}
    }
    if device == 0 {
        maps::count_lost(Reason::NoDisk);
        return;
    }
    let Some(series) = maps::slot_or_new(Key::new(device, op)).and_then(maps::series) else {
        if let Meaning::End = meaning {
            let lost = maps::count_lost(Reason::NoRoom);
            // At each power of two: the daemon is notified, and not flooded.
            if lost.is_power_of_two() {
                warn!(ctx, "{}", Key::new(device, op).bits());
            }
        }
        return;
    };
    // SAFETY: this CPU's own counters; see `maps::series`.
    let series = unsafe { &mut *series };

    // A step of a flush sequence that fails ends the sequence, and the request reports the error at its own end.
    if completion.status != 0 && (is_flush(op) || !is_in_flush_sequence(completion.flags())) {
        count_error(series, completion.status);
    }
    series.bytes = series.bytes.wrapping_add(u64::from(completion.bytes));
    if let Meaning::End = meaning {
        record_latency(series, &completion, now);
    }
}

/// Follows `blk_account_io_done()` and `blk_account_io_flush()`, which decide what is accounted, and when.
///
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-mq.c#L974>
/// <https://github.com/torvalds/linux/blob/v6.12/block/blk-flush.c#L126>
#[inline(always)]
fn meaning(completion: &Completion, op: u32) -> Meaning {
    let flags = completion.flags();
    if is_in_flush_sequence(flags) && is_flush(op) {
        // The flush request itself, accounted even if `queue/iostats` is 0.
        return Meaning::End;
    }
    if !is_accounted(flags) {
        return Meaning::NotAccounted;
    }
    let remaining = completion.remaining_bytes();
    if is_in_flush_sequence(flags) || completion.bytes < remaining {
        return Meaning::Part;
    }
    if remaining == 0 && !is_passthrough(op) && !completion.has_bio() {
        // Request-based dm ends its request when the clone has moved all bytes, and then once more with none left:
        // https://github.com/torvalds/linux/blob/v6.12/drivers/md/dm-rq.c#L76. A request that regularly ends without
        // bytes, an empty flush or a flush sequence, still has its bio.
        return Meaning::Duplicate;
    }
    Meaning::End
}

#[inline(always)]
fn record_latency(series: &mut Series, completion: &Completion, now: u64) {
    let allocated_at = completion.allocated_at();
    let issued_at = completion.issued_at();
    if allocated_at == 0 {
        // Accounted but without timestamps: passthrough between 6.8 and 6.12.
        maps::count_lost(if is_passthrough(completion.op()) {
            Reason::Passthrough
        } else {
            Reason::IostatsOff
        });
    } else if allocated_at > now || issued_at > now {
        maps::count_lost(Reason::Clock);
    } else if issued_at == 0 {
        record::total_only(series, now - allocated_at);
    } else {
        let queue = issued_at.saturating_sub(allocated_at);
        record::all_phases(series, queue, now - allocated_at - queue);
    }
}

#[inline(always)]
fn count_error(series: &mut Series, status: i32) {
    let status = if status_is_errno() { from_errno(status) } else { status.cast_unsigned() as usize };
    let errors = &mut series.errors[if status < STATUSES { status } else { STATUSES - 1 }];
    *errors = errors.wrapping_add(1);
}
