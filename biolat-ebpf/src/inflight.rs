//! Looks at the requests of one hardware queue that have not completed. The daemon runs it, nothing else does: it costs
//! an I/O nothing.
//!
//! The daemon names the hardware queue by a file descriptor of its directory in sysfs: so the kernel has found the queue,
//! it exists, and no address is needed. A request may end, and its memory may become another request, while it is looked
//! at. The order of the reads makes sure that its timestamp is never that of an earlier request: see [`allocated_at`].

use core::mem::size_of;

use aya_ebpf::{
    helpers::{bpf_get_current_task, bpf_ktime_get_ns, bpf_probe_read_kernel},
    programs::RawTracePointContext,
};
use biolat_common::inflight::{Found, MAX_SLOTS, SLOTS_PER_RUN, Tags};

use crate::{layout::layout_const, maps};

/// `MQ_RQ_IN_FLIGHT`, a request that the driver has.
const IN_FLIGHT: u32 = 1;

/// Pointers to requests that are read at once.
const BATCH: usize = 16;

/// Looks at up to [`SLOTS_PER_RUN`] slots and writes what it has found to the map. Arguments: a file descriptor, the
/// [`Tags`], the first slot.
#[inline(always)]
pub(crate) fn look(ctx: &RawTracePointContext) {
    let (descriptor, tags, first): (u64, u64, u64) = (ctx.arg(0), ctx.arg(1), ctx.arg(2));
    let Some(found) = maps::found() else { return };
    // SAFETY: one thread of the daemon runs this program and reads the result.
    let found = unsafe { &mut *found };
    *found = Found { slots: 0, has_scheduler: 0, requests: 0, untimed: 0, oldest_allocated_at: 0, now: 0 };
    let Some(hardware_queue) = hardware_queue(descriptor) else { return };
    let scheduler_tags = read_u64(hardware_queue, layout_const!(hctx_sched_tags));
    found.has_scheduler = u32::from(scheduler_tags != 0);
    let (tags, requests) = if tags == Tags::Scheduler as u64 {
        (scheduler_tags, layout_const!(tags_static_rqs))
    } else {
        (read_u64(hardware_queue, layout_const!(hctx_tags)), layout_const!(tags_rqs))
    };
    if tags == 0 {
        return;
    }
    let slots = read_u32(tags, layout_const!(tags_nr));
    let requests = read_u64(tags, requests);
    if requests == 0 || slots > MAX_SLOTS {
        return;
    }
    found.slots = slots;
    let mut oldest = u64::MAX;
    for batch in 0..SLOTS_PER_RUN / BATCH as u32 {
        let slot = first + u64::from(batch) * BATCH as u64;
        if slot >= u64::from(slots) {
            break;
        }
        // The array is as long as there are slots; what is read beyond is not used.
        let Some(pointers) = read::<[u64; BATCH]>(requests + slot * size_of::<u64>() as u64) else {
            continue;
        };
        for (index, &request) in pointers.iter().enumerate() {
            if slot + index as u64 >= u64::from(slots) {
                break;
            }
            if request == 0 || !is_pending(request, hardware_queue) {
                continue;
            }
            found.requests += 1;
            match allocated_at(request, hardware_queue) {
                0 => found.untimed += 1,
                allocated_at if allocated_at < oldest => oldest = allocated_at,
                _ => {}
            }
        }
    }
    if oldest != u64::MAX {
        found.oldest_allocated_at = oldest;
    }
    // SAFETY: the helper has no argument and no precondition.
    found.now = unsafe { bpf_ktime_get_ns() };
}

/// Whether a request of this hardware queue has not completed: the driver has it, or it has a bio. Requests that the disk
/// statistics do not count are left out: most have no timestamp, and a drive's own commands may take hours.
///
/// The kernel forgets the hardware queue when it frees a request, and the bio when it ends it.
#[inline(always)]
fn is_pending(request: u64, hardware_queue: u64) -> bool {
    read_u64(request, layout_const!(request_hctx)) == hardware_queue
        && (read_u32(request, layout_const!(request_state)) == IN_FLIGHT
            || read_u64(request, layout_const!(bio)) != 0)
        && read_u32(request, layout_const!(rq_flags))
            & (layout_const!(io_stat) | layout_const!(flush_sequence))
            != 0
}

/// When a pending request was allocated; 0 if the kernel took no timestamp.
///
/// A request has its timestamp before it has a bio and before the driver has it, so that a timestamp that is read later is
/// its own, or that of a later request. The second read is for CPUs that reorder reads: they cannot delay it for so long.
#[inline(always)]
fn allocated_at(request: u64, hardware_queue: u64) -> u64 {
    let first = read_u64(request, layout_const!(start_time_ns));
    if !is_pending(request, hardware_queue) {
        // It has just ended. As its age, that of the youngest request is never wrong.
        return u64::MAX;
    }
    let again = read_u64(request, layout_const!(start_time_ns));
    if first > again { first } else { again }
}

/// The hardware queue whose directory in sysfs this file descriptor of the daemon has open.
#[inline(always)]
fn hardware_queue(descriptor: u64) -> Option<u64> {
    // SAFETY: the helper has no argument and no precondition.
    let task = unsafe { bpf_get_current_task() };
    let files = present(read_u64(task, layout_const!(task_files)))?;
    let table = present(read_u64(files, layout_const!(files_fdt)))?;
    let files = present(read_u64(table, layout_const!(fdt_fd)))?;
    let file = present(read::<u64>(files + descriptor * size_of::<u64>() as u64)?)?;
    let inode = present(read_u64(file, layout_const!(file_inode)))?;
    let node = present(read_u64(inode, layout_const!(inode_private)))?;
    let kobject = present(read_u64(node, layout_const!(kernfs_priv)))?;
    Some(kobject - u64::from(layout_const!(hctx_kobj)))
}

#[inline(always)]
fn present(address: u64) -> Option<u64> {
    (address != 0).then_some(address)
}

/// A member of a kernel object; 0 if it cannot be read.
#[inline(always)]
fn read_u64(object: u64, offset: u32) -> u64 {
    read(object + u64::from(offset)).unwrap_or(0)
}

#[inline(always)]
fn read_u32(object: u64, offset: u32) -> u32 {
    read(object + u64::from(offset)).unwrap_or(0)
}

#[inline(always)]
fn read<T>(address: u64) -> Option<T> {
    // SAFETY: the helper fails if the address cannot be read. Any bits are valid for the integers that it reads.
    unsafe { bpf_probe_read_kernel(address as *const T) }.ok()
}
