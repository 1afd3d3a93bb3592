//! The only place that reads kernel memory: plain loads through pointers whose type the verifier tracks, at offsets that
//! the daemon found in the running kernel's BTF.

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::BtfTracePointContext};
use biolat_common::kernel::device_number;

use crate::{
    accounting::Accounting,
    layout::{field, layout_const},
};

/// The clock of the timestamps in `struct request`.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper has no argument and no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// The tracepoint's arguments.
pub(crate) struct Completion {
    request: *const u8,
    /// The status as the tracepoint passes it: see [`biolat_common::kernel::Layout::status_is_errno`].
    pub(crate) status: i32,
    /// Bytes that are complete.
    pub(crate) bytes: u32,
}

impl Completion {
    #[inline(always)]
    pub(crate) fn from_arguments(ctx: &BtfTracePointContext) -> Self {
        let status: i32 = ctx.arg(1);
        Self {
            request: ctx.arg(0),
            status: if status_is_errno() { status } else { status & 0xff },
            bytes: ctx.arg(2),
        }
    }

    /// Bytes of the request that were not complete before.
    #[inline(always)]
    pub(crate) fn remaining_bytes(&self) -> u32 {
        field!(u32, self.request, data_len)
    }

    /// Whether a bio waits for the end of the request.
    #[inline(always)]
    pub(crate) fn has_bio(&self) -> bool {
        field!(u64, self.request, bio) != 0
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

    /// When the request was allocated; 0 if the kernel took no timestamp.
    #[inline(always)]
    pub(crate) fn allocated_at(&self) -> u64 {
        field!(u64, self.request, start_time_ns)
    }

    /// When the request was issued to the driver; 0 if the kernel took no timestamp.
    #[inline(always)]
    pub(crate) fn issued_at(&self) -> u64 {
        field!(u64, self.request, io_start_time_ns)
    }

    /// The id of the disk; 0 if there is none.
    #[inline(always)]
    pub(crate) fn device(&self) -> u64 {
        // Each pointer is a member whose type the verifier knows; through a null pointer everything reads zero.
        let queue_or_disk = field!(u64, self.request, queue_or_disk) as *const u8;
        if layout_const!(disk_on_queue) != 0 {
            disk_id(field!(u64, queue_or_disk, queue_disk) as *const u8)
        } else {
            disk_id(queue_or_disk)
        }
    }
}

#[inline(always)]
fn disk_id(disk: *const u8) -> u64 {
    if layout_const!(id_is_sequence) != 0 {
        field!(u64, disk, disk_id)
    } else {
        device_number(field!(u32, disk, disk_id), field!(u32, disk, first_minor))
    }
}

/// Whether the kernel accounts a request with these flags, and it is not part of a flush sequence.
#[inline(always)]
pub(crate) fn is_plain(flags: u32) -> bool {
    flags & (layout_const!(flush_sequence) | layout_const!(io_stat)) == layout_const!(io_stat)
}

/// What this kernel accounts.
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
pub(crate) fn status_is_errno() -> bool {
    layout_const!(status_is_errno) != 0
}
