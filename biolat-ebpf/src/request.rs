//! The only place that reads kernel memory: plain loads through pointers that the verifier knows, at
//! offsets that the daemon found in the running kernel's BTF.

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::BtfTracePointContext};
use biolat_common::kernel::device_number;

use crate::told::{member, told};

/// The clock that the kernel's stamps are of.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper takes no argument and has no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// The tracepoint's arguments.
pub(crate) struct Completion {
    request: *const u8,
    /// The status as the tracepoint carries it: see [`biolat_common::kernel::Layout::status_is_errno`].
    pub(crate) status: i32,
    /// Bytes that this completion is about.
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

    /// Bytes that the request still had to move when it came here.
    #[inline(always)]
    pub(crate) fn remaining_bytes(&self) -> u32 {
        member!(u32, self.request, data_len)
    }

    /// Whether there is still a bio that waits for the request's end.
    #[inline(always)]
    pub(crate) fn has_bio(&self) -> bool {
        member!(u64, self.request, bio) != 0
    }

    /// `RQF_*`.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u32 {
        member!(u32, self.request, rq_flags)
    }

    #[inline(always)]
    pub(crate) fn op(&self) -> u32 {
        // The lowest byte of the flags is the op.
        member!(u32, self.request, cmd_flags) & 0xff
    }

    /// When the request was made; 0 if the kernel took no stamp.
    #[inline(always)]
    pub(crate) fn started(&self) -> u64 {
        member!(u64, self.request, start_time_ns)
    }

    /// When the driver got the request; 0 if the kernel took no stamp.
    #[inline(always)]
    pub(crate) fn handed_over(&self) -> u64 {
        member!(u64, self.request, io_start_time_ns)
    }

    /// The id of the disk; 0 if there is none.
    #[inline(always)]
    pub(crate) fn device(&self) -> u64 {
        // Each pointer is a member that the verifier knows the type of; null reads as zero.
        let queue_or_disk = member!(u64, self.request, queue_or_disk) as *const u8;
        if told!(disk_on_queue) != 0 {
            id_of(member!(u64, queue_or_disk, queue_disk) as *const u8)
        } else {
            id_of(queue_or_disk)
        }
    }
}

#[inline(always)]
fn id_of(disk: *const u8) -> u64 {
    if told!(id_is_sequence) != 0 {
        member!(u64, disk, disk_id)
    } else {
        device_number(member!(u32, disk, disk_id), member!(u32, disk, first_minor))
    }
}

/// Whether these flags are those of a request that the kernel books and that is not part of a flush sequence.
#[inline(always)]
pub(crate) fn is_plain(flags: u32) -> bool {
    flags & (told!(flush_sequence) | told!(io_stat)) == told!(io_stat)
}

#[inline(always)]
pub(crate) fn is_in_flush_sequence(flags: u32) -> bool {
    flags & told!(flush_sequence) != 0
}

#[inline(always)]
pub(crate) fn is_booked(flags: u32) -> bool {
    flags & told!(io_stat) != 0
}

#[inline(always)]
pub(crate) fn is_flush(op: u32) -> bool {
    op == told!(op_flush)
}

#[inline(always)]
pub(crate) fn is_passthrough(op: u32) -> bool {
    op >= told!(op_passthrough)
}

#[inline(always)]
pub(crate) fn status_is_errno() -> bool {
    told!(status_is_errno) != 0
}
