//! Counts a completed I/O for the process that submitted it, or sends a record of it.

use aya_ebpf::programs::BtfTracePointContext;
use biolat_common::{
    bucket::{LIMIT_NS, cell},
    lost::Reason,
    processes::{IoRecord, ProcessKey},
    series::Key,
    size::band_cell,
};

use crate::{
    accounting::Meaning,
    constants::constant,
    maps,
    request::{Completion, accounting},
};

/// One I/O is what the disk statistics count, as in the probe.
#[inline(always)]
pub(crate) fn record(ctx: &BtfTracePointContext, now: u64) {
    let completion = Completion::from_arguments(ctx);
    let Some(region) = maps::region(&completion) else { return };
    let (op, flags) = (completion.op(), completion.flags());
    let accounting = accounting();
    let meaning =
        accounting.meaning(flags, op, completion.bytes, completion.remaining_bytes(), completion.has_bio());
    let has_ended = match meaning {
        Meaning::End => true,
        Meaning::Part => false,
        Meaning::Duplicate => return,
        Meaning::NotAccounted => {
            return maps::count_lost(if accounting.is_passthrough(op) {
                Reason::Passthrough
            } else {
                Reason::IostatsOff
            });
        }
    };
    let entry = maps::entry(&completion, region);
    // SAFETY: only this request uses the entry, and its completions run one at a time.
    let stored = entry.map_or(0, |entry| unsafe { *entry });
    let (process, bytes_before) = (stored as u32, (stored >> 32) as u32);
    let bytes = bytes_before.wrapping_add(completion.bytes);
    // A flush request has the tag of the request that waits for it, which has not ended yet.
    if let Some(entry) = entry
        && op != accounting.op_flush
    {
        // SAFETY: as above.
        unsafe { *entry = if has_ended { 0 } else { u64::from(process) | u64::from(bytes) << 32 } };
    }
    let status = if completion.status != 0 && accounting.reports_status(flags, op) {
        completion.status_index()
    } else {
        0
    };
    let series = Key::new(region.device, op);
    let io = Io { completion: &completion, series, process, status, has_ended, now };
    if constant!(processes.sends_ios) == 0 {
        io.count();
    } else if has_ended {
        io.send(bytes);
    }
}

struct Io<'a> {
    completion: &'a Completion,
    series: Key,
    process: u32,
    status: usize,
    has_ended: bool,
    now: u64,
}

impl Io<'_> {
    #[inline(always)]
    fn count(&self) {
        let key = ProcessKey { series: self.series, process: self.process, epoch: maps::control().epoch };
        let Some(usage) = maps::usage(&key) else {
            return maps::count_lost(Reason::NoRoom);
        };
        // SAFETY: this CPU's own counters; see `maps::usage`.
        let usage = unsafe { &mut *usage };
        usage.bytes = usage.bytes.wrapping_add(u64::from(self.completion.bytes));
        usage.errors = usage.errors.wrapping_add(u64::from(self.status != 0));
        if self.has_ended {
            let device_ns = self.device_ns();
            usage.device_ns = usage.device_ns.wrapping_add(device_ns);
            let in_range = if device_ns < LIMIT_NS { device_ns } else { LIMIT_NS - 1 };
            let count = &mut usage.cells[band_cell(cell(in_range))];
            *count = count.wrapping_add(1);
        }
    }

    #[inline(always)]
    fn send(&self, bytes: u32) {
        let one_of = maps::control().one_of;
        if !maps::is_sampled(one_of) {
            return;
        }
        let (allocated_at, issued_at) = (self.completion.allocated_at(), self.completion.issued_at());
        maps::send(IoRecord {
            completed_ns: self.now,
            series: self.series,
            sector: self.completion.sector(),
            queue_ns: issued_at.saturating_sub(allocated_at),
            device_ns: self.device_ns(),
            bytes,
            process: self.process,
            status: self.status as u32,
            one_of,
        });
    }

    /// The device latency or, without a dispatch timestamp, the total latency. 0 if the timestamp is in the future.
    ///
    /// A dispatch may seem to precede the allocation: see the probe's `record::common_phases`.
    #[inline(always)]
    fn device_ns(&self) -> u64 {
        let (allocated_at, issued_at) = (self.completion.allocated_at(), self.completion.issued_at());
        let began = if issued_at > allocated_at { issued_at } else { allocated_at };
        self.now.saturating_sub(began)
    }
}
