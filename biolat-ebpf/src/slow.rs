//! Sends records of slow and failed I/Os. Only the rare case does so.

use aya_ebpf::{helpers::bpf_get_smp_processor_id, programs::BtfTracePointContext};
use biolat_common::{
    series::Key,
    slow::{SlowRecord, UNKNOWN_NS},
};

use crate::{
    accounting::Meaning,
    constants::option_const,
    maps::{self, Program},
    names,
    request::{Completion, accounting},
};

/// Sends a record if `--slow` is on and the request has failed, or was slow and has ended. The I/O is counted before the daemon
/// can read its record.
#[inline(never)]
pub(crate) fn send_if_slow<P: Program>(ctx: &BtfTracePointContext, now: u64) {
    let limit_ms = option_const!(slow_ms);
    if limit_ms == 0 {
        return;
    }
    let completion = Completion::from_arguments(ctx);
    let (allocated_at, issued_at) = (completion.allocated_at(), completion.issued_at());
    let since_allocation = since(allocated_at, now);
    let is_slow = since_allocation != UNKNOWN_NS && since_allocation >= u64::from(limit_ms) * 1_000_000;
    if completion.status == 0 && !is_slow {
        return;
    }
    let (op, flags) = (completion.op(), completion.flags());
    let accounting = accounting();
    let has_failed = completion.status != 0 && accounting.reports_status(flags, op);
    // The latency is known and counted only when the request has ended.
    let total_ns = match accounting.meaning(
        flags,
        op,
        completion.bytes,
        completion.remaining_bytes(),
        completion.has_bio(),
    ) {
        Meaning::End if has_failed || is_slow => {
            if issued_at > now {
                UNKNOWN_NS
            } else {
                since_allocation
            }
        }
        Meaning::Part if has_failed => UNKNOWN_NS,
        _ => return,
    };
    let Some(device) = completion.device() else { return };
    let record = SlowRecord {
        completed_ns: now,
        key: Key::new(device, op),
        sector: completion.sector(),
        admission_ns: completion.admission().unwrap_or(UNKNOWN_NS),
        queue_ns: if issued_at == 0 { UNKNOWN_NS } else { issued_at.saturating_sub(allocated_at) },
        total_ns,
        workload: completion.workload(completion.cgroup()),
        bytes: completion.bytes,
        status: if has_failed { completion.status_index() as u32 } else { 0 },
        // SAFETY: the helper has no argument and no precondition.
        cpu: unsafe { bpf_get_smp_processor_id() },
        padding: 0,
    };
    if option_const!(slow_names) == 0 {
        maps::send_slow::<P>(record);
    } else {
        names::send::<P>(&record, completion.address());
    }
}

#[inline(always)]
fn since(timestamp: u64, now: u64) -> u64 {
    if timestamp == 0 || timestamp > now { UNKNOWN_NS } else { now - timestamp }
}
