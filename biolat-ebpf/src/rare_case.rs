//! The rare case: every completion that is not the common case. This code is out of line and complete: it could record every
//! request.

use aya_ebpf::programs::BtfTracePointContext;
use aya_log_ebpf::warn;
use biolat_common::{
    event::{Event, EventKind},
    lost::Reason,
    series::{Key, Series},
    slot::Cell,
};

use crate::{
    accounting::Meaning,
    constants::option_const,
    maps::{self, Cpu, EntryPointer, Program},
    record::{self, Latency},
    request::{Completion, accounting},
    workload,
};

#[inline(never)]
pub(crate) fn record<P: Program>(ctx: &BtfTracePointContext, now: u64) {
    let completion = Completion::from_arguments(ctx);
    let op = completion.op();
    let flags = completion.flags();
    let accounting = accounting();
    let meaning =
        accounting.meaning(flags, op, completion.bytes, completion.remaining_bytes(), completion.has_bio());

    match meaning {
        Meaning::NotAccounted => {
            maps::count_lost::<P>(if accounting.is_passthrough(op) {
                Reason::Passthrough
            } else {
                Reason::IostatsOff
            });
            return;
        }
        Meaning::Duplicate => return,
        Meaning::End | Meaning::Part => {}
    }
    let Some(device) = completion.device() else {
        maps::count_lost::<P>(Reason::NoDisk);
        return;
    };
    let key = Key::new(device, op);
    let whole = whole_bytes(&completion, meaning, accounting.is_in_flush_sequence(flags));
    let cpu = Cpu::current();
    if let Some(slot) = maps::slot_or_new(key)
        && let Some(counters) = maps::series::<P>(cpu, slot)
    {
        // SAFETY: this CPU's own counters; see `maps::series`.
        let series = unsafe { &mut *counters };
        let entry = workload::entry::<P>(&completion, cpu, Cell::new(key, slot));
        let has_failed = completion.status != 0 && accounting.reports_status(flags, op);
        if has_failed {
            let errors = &mut series.errors[completion.status_index()];
            *errors = errors.wrapping_add(1);
        }
        record::bytes(series, entry, completion.bytes, has_failed);
        if let Meaning::End = meaning {
            let device = record_latency::<P>(series, entry, &completion, whole, now);
            if let Some(device) = device
                && option_const!(sizes) != 0
            {
                // SAFETY: this CPU's own counters; see `maps::series`.
                record::any_size(unsafe { &mut *maps::sizes(counters) }, whole, device);
            }
        }
    } else if let Meaning::End = meaning {
        let lost = maps::count_lost::<P>(Reason::NoRoom);
        // Only at powers of two, so as not to flood the daemon.
        if lost.is_power_of_two() {
            maps::send(Event::new(EventKind::NoRoom, key));
        }
    }
}

/// Returns the size of a request that has ended, including the bytes of its earlier parts. For a part, stores its bytes and
/// returns 0.
#[inline(always)]
fn whole_bytes(completion: &Completion, meaning: Meaning, is_in_flush_sequence: bool) -> u32 {
    if option_const!(sizes) == 0 {
        return 0;
    }
    let (request, allocated_at) = (completion.address(), completion.allocated_at());
    if let Meaning::Part = meaning {
        maps::add_part(request, allocated_at, completion.bytes);
        // Not needed in a flush sequence: its end has no bytes left, or an error, so it is a rare case anyway.
        if !is_in_flush_sequence {
            maps::note_part(allocated_at);
        }
        return 0;
    }
    let whole = maps::take_parts(request, allocated_at) + u64::from(completion.bytes);
    if whole > u64::from(u32::MAX) { u32::MAX } else { whole as u32 }
}

/// A mask for the dispatch timestamp: zero for a read or write none of whose bytes are known, because its data completed before
/// the probe was attached or its entry in `PARTS` was evicted; otherwise all ones. The size of such a request is unknown, so only
/// its total latency is recorded, and the bands still add up to the device latencies. A read or write without any data was never
/// dispatched, so the mask does not affect it.
///
/// There is no branch, because one would double the paths that the verifier walks.
#[inline(always)]
fn has_known_size(completion: &Completion, whole: u32) -> u64 {
    const WRITE: u32 = 1;
    if option_const!(sizes) == 0 {
        return u64::MAX;
    }
    let is_known = u64::from(whole | completion.op() & !WRITE);
    (is_known.wrapping_neg().cast_signed() >> 63).cast_unsigned()
}

/// Records the latency of a request that has ended. `None` if it is lost.
#[inline(always)]
fn record_latency<P: Program>(
    series: &mut Series,
    entry: Option<EntryPointer>,
    completion: &Completion,
    whole: u32,
    now: u64,
) -> Option<Latency> {
    let allocated_at = completion.allocated_at();
    let issued_at = completion.issued_at() & has_known_size(completion, whole);
    if allocated_at == 0 {
        // Accounted, but without timestamps: passthrough between 6.8 and 6.12.
        maps::count_lost::<P>(if accounting().is_passthrough(completion.op()) {
            Reason::Passthrough
        } else {
            Reason::IostatsOff
        });
        None
    } else if allocated_at > now || issued_at > now {
        if maps::count_lost::<P>(Reason::Clock).is_power_of_two() {
            warn_of_clock();
        }
        None
    } else {
        if let Some(admission) = completion.admission() {
            record::admission(series, admission);
        }
        if issued_at == 0 {
            record::total_only(series, entry, now - allocated_at);
            Some(Latency::Total(now - allocated_at))
        } else {
            let queue = issued_at.saturating_sub(allocated_at);
            let device = now - allocated_at - queue;
            record::all_phases(series, entry, queue, device);
            Some(Latency::Device(device))
        }
    }
}

/// Records an admission latency that is too long for the common case.
#[inline(never)]
pub(crate) fn record_admission(series: &mut Series, admission: u64) {
    record::admission(series, admission);
}

/// Out of line, because formatting a message takes more code than everything else here. A global function, which the verifier
/// walks only once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn warn_of_clock() -> u32 {
    warn!((), "a kernel timestamp is later than the completion of its request: lost, reason clock");
    0
}
