//! Stores the process that submits a request.

use aya_ebpf::{EbpfContext as _, helpers::bpf_get_current_pid_tgid, programs::BtfTracePointContext};

use crate::{constants::member, maps, request::Completion};

/// Stores the current process as the request's. If bios of other processes are merged into the request later, it stays the
/// request's.
#[inline(always)]
pub(crate) fn store(ctx: &BtfTracePointContext) {
    if let Some(entry) = entry(ctx) {
        write(entry);
    }
}

/// Stores the current process unless the request has one: entries are zero between requests.
#[inline(always)]
pub(crate) fn store_unless_inserted(ctx: &BtfTracePointContext) {
    if let Some(entry) = entry(ctx)
        // SAFETY: only this request uses the entry.
        && unsafe { *entry } == 0
    {
        write(entry);
    }
}

#[inline(always)]
fn entry(ctx: &BtfTracePointContext) -> Option<*mut u64> {
    // Not a branch: the compiler would add to the context's pointer, which the verifier rejects.
    let pointer = member!(u64, ctx.as_ptr().cast::<u8>(), processes.start_request);
    let request = Completion::of_request(pointer as *const u8);
    maps::entry(&request, maps::region(&request)?)
}

#[inline(always)]
fn write(entry: *mut u64) {
    let process = (bpf_get_current_pid_tgid() >> 32) as u32;
    // SAFETY: only this request uses the entry.
    unsafe { *entry = u64::from(process) };
    maps::note_name(process, maps::control().epoch);
}
