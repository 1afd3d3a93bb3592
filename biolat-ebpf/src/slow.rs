//! Records of single I/Os that were slow or failed. Only the rare case sends them.

use aya_ebpf::helpers::bpf_get_smp_processor_id;
use biolat_common::{
    series::Key,
    slow::{SlowRecord, UNKNOWN_NS},
};

use crate::{layout::layout_const, maps, request::Completion};

/// What is known of a request at its end.
pub(crate) struct Ended {
    pub(crate) key: Key,
    /// Its status as the daemon names it; 0 if it did not fail.
    pub(crate) status: u32,
    /// When it completed.
    pub(crate) now: u64,
}

/// Sends a record if the daemon wants records, and the request failed or took long.
#[inline(always)]
pub(crate) fn send_if_slow(completion: &Completion, ended: &Ended) {
    let limit_ms = layout_const!(slow_ms);
    if limit_ms == 0 {
        return;
    }
    let allocated_at = completion.allocated_at();
    let issued_at = completion.issued_at();
    let total = since(allocated_at, ended.now);
    let is_slow = total != UNKNOWN_NS && total >= u64::from(limit_ms) * 1_000_000;
    if ended.status == 0 && !is_slow {
        return;
    }
    maps::send_slow(SlowRecord {
        completed_ns: ended.now,
        key: ended.key,
        sector: completion.sector(),
        admission_ns: completion.admission().unwrap_or(UNKNOWN_NS),
        queue_ns: if issued_at == 0 { UNKNOWN_NS } else { issued_at.saturating_sub(allocated_at) },
        total_ns: total,
        workload: 0,
        bytes: completion.bytes,
        status: ended.status,
        // SAFETY: the helper has no argument and no precondition.
        cpu: unsafe { bpf_get_smp_processor_id() },
        padding: 0,
    });
}

#[inline(always)]
fn since(timestamp: u64, now: u64) -> u64 {
    if timestamp == 0 || timestamp > now { UNKNOWN_NS } else { now - timestamp }
}
