//! The common case: a request of a known series that completes successfully, as a whole, in less than 33 ms, and has both
//! timestamps. Everything else is left to `rare_case`.
//!
//! Apart from array lookups, which the kernel inlines, the common case calls no helpers but the clock and the CPU's number. It writes
//! only this CPU's memory, unless completions are marked or a workload's entry is not in its first place.

use biolat_common::{
    bucket::{COMMON_LIMIT_NS, ZERO_BUCKET_NS},
    series::Key,
    size,
};

use crate::{
    constants::option_const,
    maps::{self, Cpu, Program},
    rare_case, record,
    request::{Completion, is_plain},
    workload,
};

/// Records the completion if it is the common case. Otherwise returns `false` and records nothing.
#[inline(always)]
pub(crate) fn record<P: Program>(completion: &Completion, now: u64) -> bool {
    if completion.status != 0
        || !is_plain(completion.flags())
        || completion.bytes == 0
        || completion.bytes < completion.remaining_bytes()
    {
        return false;
    }
    let allocated_at = completion.allocated_at();
    let issued_at = completion.issued_at();
    if allocated_at == 0 || issued_at == 0 {
        return false;
    }
    if has_null(completion) {
        return false;
    }
    let Some(device) = completion.device() else { return false };
    let Some(cell) = maps::series_in_table(Key::new(device, completion.op())) else { return false };
    // If a timestamp is later than the completion, the difference wraps around to a huge value. The limit is a power of two, so
    // the two differences can be combined.
    if (now.wrapping_sub(allocated_at) | now.wrapping_sub(issued_at)) >= COMMON_LIMIT_NS {
        return false;
    }
    let has_sizes = option_const!(sizes) != 0;
    // Parts of this request may already have completed.
    if has_sizes && (completion.bytes > size::COMMON_LIMIT || maps::may_have_parts(allocated_at)) {
        return false;
    }
    let cpu = Cpu::current();
    let entry = workload::entry::<P>(completion, cpu, cell);
    let Some(counters) = maps::series::<P>(cpu, cell.slot()) else { return false };
    // SAFETY: this CPU's own counters; see `maps::series`.
    let series = unsafe { &mut *counters };
    let device = record::common_phases(series, entry, completion.bytes, allocated_at, issued_at, now);
    if has_sizes {
        // SAFETY: this CPU's own counters; see `maps::series`.
        record::common_size(unsafe { &mut *maps::sizes(counters) }, completion.bytes, device);
    }
    match completion.admission() {
        None => {}
        Some(admission) if admission <= ZERO_BUCKET_NS => record::zero_admission(series, admission),
        Some(admission) if admission < COMMON_LIMIT_NS => record::common_admission(series, admission),
        Some(admission) => rare_case::record_admission(series, admission),
    }
    true
}

/// Whether a pointer that the common case follows is null.
///
/// A load through a null pointer reads zero, but on arm64, and on x86-64 before 5.12, it faults first. Before 6.4 ("bpf: ensure
/// main program has an extable"), if the fault is in the main program, into which all of this code is inlined, the kernel may
/// fail to find the entry in the exception table and crash. It does find the entries of subprograms such as the rare case.
#[inline(always)]
fn has_null(completion: &Completion) -> bool {
    !completion.has_bio() || option_const!(workload_slots) != 0 && !completion.has_cgroup()
}
