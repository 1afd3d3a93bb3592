//! Surveys the requests in flight on one hardware queue. Only the daemon runs this program, so it adds no cost to an I/O.
//!
//! The daemon identifies the hardware queue by a file descriptor of its sysfs directory, so the kernel has already resolved the
//! queue and no address has to be passed. During a run, a request may end and its memory may be reused for another one. The order
//! of the reads makes it very unlikely that a timestamp belongs to an earlier request: see [`allocated_at`].

use core::mem::size_of;

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::RawTracePointContext};
use biolat_common::inflight::{Found, MAX_SLOTS, SLOTS_PER_RUN};

use crate::{
    constants::layout_const,
    kernel_memory::{open_file, present, read, read_u32, read_u64},
    maps,
};

/// Number of request pointers read at once.
const BATCH: usize = 16;

/// Surveys up to [`SLOTS_PER_RUN`] slots and writes the result to the map. Arguments: the file descriptor and the first slot.
#[inline(always)]
pub(crate) fn look(ctx: &RawTracePointContext) {
    let (descriptor, first): (u64, u64) = (ctx.arg(0), ctx.arg(1));
    let Some(found) = maps::found() else { return };
    // SAFETY: only one thread of the daemon runs this program and reads the result.
    let found = unsafe { &mut *found };
    *found = Found { slots: 0, requests: 0, oldest_allocated_at: 0, now: 0 };
    let Some(hardware_queue) = hardware_queue(descriptor) else { return };
    // With a scheduler, every request has a scheduler tag, dispatched or not.
    let scheduler_tags = read_u64(hardware_queue, layout_const!(hctx_sched_tags));
    let tags = match scheduler_tags {
        0 => read_u64(hardware_queue, layout_const!(hctx_tags)),
        tags => tags,
    };
    if tags == 0 {
        return;
    }
    let slots = read_u32(tags, layout_const!(tags_nr));
    let requests = read_u64(tags, layout_const!(tags_static_rqs));
    if requests == 0 || slots > MAX_SLOTS {
        return;
    }
    found.slots = slots;
    for batch in 0..SLOTS_PER_RUN / BATCH as u32 {
        let slot = first + u64::from(batch) * BATCH as u64;
        if slot >= u64::from(slots) {
            break;
        }
        // The array has one element per slot; anything read beyond its end is ignored.
        let pointers: [u64; BATCH] = read(requests + slot * size_of::<u64>() as u64);
        for (index, &request) in pointers.iter().enumerate() {
            if slot + index as u64 >= u64::from(slots) {
                break;
            }
            // Most slots are free and need no call.
            if belongs_to(request, hardware_queue) {
                match pending_since(request, hardware_queue) {
                    NOT_PENDING => {}
                    allocated_at => count(found, allocated_at),
                }
            }
        }
    }
    // SAFETY: the helper has no argument and no precondition.
    found.now = unsafe { bpf_ktime_get_ns() };
}

/// Counts a request. The result is kept in the map, never in a register: the verifier does not track values in maps, but would
/// walk the rest of the program for each possible value of a register.
#[inline(always)]
fn count(found: &mut Found, allocated_at: u64) {
    let (requests, oldest) = (&raw mut found.requests, &raw mut found.oldest_allocated_at);
    // SAFETY: the fields of a valid reference.
    unsafe {
        requests.write_volatile(requests.read_volatile() + 1);
        // Zero means none; subtracting 1 turns it into the largest number.
        if allocated_at.wrapping_sub(1) < oldest.read_volatile().wrapping_sub(1) {
            oldest.write_volatile(allocated_at);
        }
    }
}

/// Result of [`pending_since`] for a request that is not pending; never a timestamp.
const NOT_PENDING: u64 = u64::MAX;

/// When a request of this hardware queue was allocated, see [`allocated_at`]; [`NOT_PENDING`] if it has completed.
///
/// This is a global function, so the verifier walks it once. Inlined, it would be walked several times per slot, because the
/// verifier does not see that its branches lead to the same state.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pending_since(request: u64, hardware_queue: u64) -> u64 {
    if has_io(request) { allocated_at(request, hardware_queue) } else { NOT_PENDING }
}

/// Whether a request belongs to this hardware queue. The kernel clears the pointer when it frees the request.
#[inline(always)]
fn belongs_to(request: u64, hardware_queue: u64) -> bool {
    read_u64(request, layout_const!(request_hctx)) == hardware_queue
}

/// Whether a request has an I/O in flight, dispatched or not: it has a bio, which the kernel clears when the I/O ends. The
/// kernel's own flush request has none, but the request that waits for the flush has one. Excludes requests that are not
/// accounted in the disk statistics, such as a drive's own commands, which may take hours.
#[inline(always)]
fn has_io(request: u64) -> bool {
    read_u64(request, layout_const!(bio)) != 0
        && read_u32(request, layout_const!(rq_flags)) & layout_const!(io_stat) != 0
        && read_u32(request, layout_const!(cmd_flags)) & 0xff < layout_const!(op_passthrough)
}

/// When a pending request was allocated; 0 if it has ended in the meantime or the kernel took no timestamp.
///
/// The kernel stores a request's timestamp before its bio, without a barrier, so a timestamp read after the bio belongs to this
/// request or a later one, as long as neither side is reordered. A CPU may have executed the first load of the timestamp before
/// the load of the bio. The second load comes several helper calls later, and the later of the two timestamps counts. An error
/// would require reordering across all of this, and would last for one survey.
#[inline(always)]
fn allocated_at(request: u64, hardware_queue: u64) -> u64 {
    let first = read_u64(request, layout_const!(start_time_ns));
    if !belongs_to(request, hardware_queue) || !has_io(request) {
        return 0;
    }
    let again = read_u64(request, layout_const!(start_time_ns));
    if first > again { first } else { again }
}

/// The hardware queue whose sysfs directory the daemon has open at this file descriptor.
#[inline(always)]
fn hardware_queue(descriptor: u64) -> Option<u64> {
    let file = open_file(descriptor)?;
    let inode = present(read_u64(file, layout_const!(file_inode)))?;
    let node = present(read_u64(inode, layout_const!(inode_private)))?;
    let kobject = present(read_u64(node, layout_const!(kernfs_priv)))?;
    Some(kobject - u64::from(layout_const!(hctx_kobj)))
}
