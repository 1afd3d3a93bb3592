//! Reads requests, with plain loads through pointers whose types the verifier tracks, at offsets from the running kernel's BTF.

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::BtfTracePointContext};
use biolat_common::{
    bucket::positive,
    kernel::bio_issue,
    status::{STATUSES, from_errno},
};

use crate::{
    accounting::Accounting,
    constants::{field, layout_const},
    disk::Disk,
};

/// The current time, on the clock of the timestamps in `struct request`.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper has no argument and no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// The tracepoint's arguments, or a request that is not completing: see [`Completion::of_request`].
pub(crate) struct Completion {
    request: *const u8,
    /// The status as passed by the tracepoint: see [`biolat_common::kernel::KernelLayout::status_is_errno`].
    pub(crate) status: i32,
    /// The number of bytes that complete now.
    pub(crate) bytes: u32,
}

impl Completion {
    /// The address of the request.
    #[inline(always)]
    pub(crate) fn address(&self) -> u64 {
        self.request as u64
    }

    #[inline(always)]
    pub(crate) fn pointer(&self) -> *const u8 {
        self.request
    }

    /// A request that is not being completed.
    #[inline(always)]
    pub(crate) fn of_request(request: *const u8) -> Self {
        Self { request, status: 0, bytes: 0 }
    }

    #[inline(always)]
    pub(crate) fn from_arguments(ctx: &BtfTracePointContext) -> Self {
        let status: i32 = ctx.arg(1);
        Self {
            request: ctx.arg(0),
            status: if status_is_errno() { status } else { status & 0xff },
            bytes: ctx.arg(2),
        }
    }

    /// The index of the status in the error counters.
    #[inline(always)]
    pub(crate) fn status_index(&self) -> usize {
        let status =
            if status_is_errno() { from_errno(self.status) } else { self.status.cast_unsigned() as usize };
        if status < STATUSES { status } else { STATUSES - 1 }
    }

    /// The bytes of the request that had not completed before this completion.
    #[inline(always)]
    pub(crate) fn remaining_bytes(&self) -> u32 {
        field!(u32, self.request, data_len)
    }

    /// Whether a bio still waits for the request to end.
    #[inline(always)]
    pub(crate) fn has_bio(&self) -> bool {
        !self.bio().is_null()
    }

    /// Whether the first bio has a cgroup. The request must have a bio. Passthrough commands have no cgroup.
    #[inline(always)]
    pub(crate) fn has_cgroup(&self) -> bool {
        !self.cgroup_on_queue().is_null()
    }

    /// `RQF_*`.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u32 {
        field!(u32, self.request, rq_flags)
    }

    #[inline(always)]
    pub(crate) fn op(&self) -> u32 {
        // The lowest byte of the flags is the op.
        field!(u32, self.request, cmd_flags) & 0xff
    }

    /// When the request was allocated; 0 if the kernel took no timestamp. This is `start_time_ns`, not `alloc_time_ns`, which is
    /// earlier.
    #[inline(always)]
    pub(crate) fn allocated_at(&self) -> u64 {
        field!(u64, self.request, start_time_ns)
    }

    /// When the driver last called `blk_mq_start_request()` for the request, that is, its last dispatch after requeues; 0 if the
    /// kernel took no timestamp.
    #[inline(always)]
    pub(crate) fn issued_at(&self) -> u64 {
        field!(u64, self.request, io_start_time_ns)
    }

    /// Nanoseconds from the submission of the first bio to the allocation of the request. `None` if the kernel took no timestamp
    /// at submission; 0 for a bio submitted after the allocation and merged in front, because it did not wait.
    #[inline(always)]
    pub(crate) fn admission(&self) -> Option<u64> {
        let submitted_at = match layout_const!(bio_issue_kind) {
            bio_issue::VALUE => {
                return bio_issue::wait(field!(u64, self.bio(), bio_issue), self.allocated_at());
            }
            // Testing the flag first avoids reading the bio, which may not be in the cache.
            bio_issue::NANOSECONDS if self.has_submission_times() => field!(u64, self.bio(), bio_issue),
            _ if layout_const!(has_alloc_time) != 0 => field!(u64, self.request, alloc_time_ns),
            _ => 0,
        };
        (submitted_at != 0).then_some(positive(self.allocated_at().wrapping_sub(submitted_at)))
    }

    /// Whether the kernel takes a timestamp when a bio is submitted to this queue.
    #[inline(always)]
    fn has_submission_times(&self) -> bool {
        let queue = field!(u64, self.request, queue_or_disk) as *const u8;
        field!(u32, queue, queue_flags) & layout_const!(queue_has_issue_times) != 0
    }

    /// The first bio that has not completed. May be null.
    #[inline(always)]
    fn bio(&self) -> *const u8 {
        field!(u64, self.request, bio) as *const u8
    }

    /// The cgroup that the kernel charges for the first bio that has not completed. May be null.
    #[inline(always)]
    pub(crate) fn cgroup(&self) -> *const u8 {
        field!(u64, self.cgroup_on_queue(), blkg_blkcg) as *const u8
    }

    /// The state of the cgroup on this queue: `struct blkcg_gq`.
    #[inline(always)]
    fn cgroup_on_queue(&self) -> *const u8 {
        field!(u64, self.bio(), bio_blkg) as *const u8
    }

    /// The serial number of the cgroup, which is never reused. Without a cgroup, the load through the null pointer reads
    /// [`biolat_common::workload::KERNEL`]; only subprograms may follow a null pointer: see `common_case::has_null`.
    #[inline(always)]
    pub(crate) fn workload(&self, cgroup: *const u8) -> u64 {
        field!(u64, cgroup, blkcg_serial)
    }

    /// The first sector that has not completed.
    #[inline(always)]
    pub(crate) fn sector(&self) -> u64 {
        field!(u64, self.request, sector)
    }

    /// The id of the disk: see [`Disk::id`].
    #[inline(always)]
    pub(crate) fn device(&self) -> Option<u64> {
        self.disk().id()
    }

    #[inline(always)]
    fn disk(&self) -> Disk {
        // Each pointer is loaded from a member, so the verifier knows its type.
        let queue_or_disk = field!(u64, self.request, queue_or_disk) as *const u8;
        Disk::at(if layout_const!(disk_on_queue) != 0 {
            field!(u64, queue_or_disk, queue_disk) as *const u8
        } else {
            queue_or_disk
        })
    }
}

/// Whether a request with these flags is accounted by the kernel and not part of a flush sequence.
#[inline(always)]
pub(crate) fn is_plain(flags: u32) -> bool {
    flags & (layout_const!(flush_sequence) | layout_const!(io_stat)) == layout_const!(io_stat)
}

/// The constants of the running kernel that the accounting depends on.
#[inline(always)]
pub(crate) fn accounting() -> Accounting {
    Accounting {
        flush_sequence: layout_const!(flush_sequence),
        io_stat: layout_const!(io_stat),
        op_flush: layout_const!(op_flush),
        op_passthrough: layout_const!(op_passthrough),
    }
}

#[inline(always)]
fn status_is_errno() -> bool {
    layout_const!(status_is_errno) != 0
}
