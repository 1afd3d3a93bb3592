//! The only place that reads kernel memory: plain loads through pointers that the verifier knows, at
//! offsets that the daemon found in the running kernel's BTF.

use core::ptr::read_volatile;

use aya_ebpf::{helpers::bpf_ktime_get_ns, programs::BtfTracePointContext};
use biolat_common::kernel::{Layout, device_number};

/// Filled by the daemon before load; zeros here.
#[unsafe(no_mangle)]
static KERNEL: Layout = Layout {
    cmd_flags: 0,
    rq_flags: 0,
    data_len: 0,
    bio: 0,
    start_time_ns: 0,
    io_start_time_ns: 0,
    queue_or_disk: 0,
    queue_disk: 0,
    disk_on_queue: 0,
    disk_id: 0,
    first_minor: 0,
    id_is_sequence: 0,
    flush_sequence: 0,
    io_stat: 0,
    op_flush: 0,
    op_passthrough: 0,
    status_is_errno: 0,
};

/// A field of [`KERNEL`], as the daemon filled it: volatile, lest the compiler take the zeros for the truth.
#[inline(always)]
fn told(field: &'static u32) -> u32 {
    // SAFETY: a reference is valid and aligned.
    unsafe { read_volatile(field) }
}

/// The clock that the kernel's stamps are of.
#[inline(always)]
pub(crate) fn now() -> u64 {
    // SAFETY: the helper takes no argument and has no precondition.
    unsafe { bpf_ktime_get_ns() }
}

/// Reads `T` at `offset` of a kernel object.
///
/// # Safety
///
/// `object` is a pointer that the verifier tracks by its type: it refuses the program at load time if the
/// offset is not inside that type, and a fault (a null pointer included) reads as zero.
#[inline(always)]
unsafe fn member<T>(object: *const u8, offset: u32) -> T {
    // SAFETY: see above.
    unsafe { read_volatile(object.add(offset as usize).cast()) }
}

/// The tracepoint's arguments.
pub(crate) struct Completion {
    request: *const u8,
    /// The status as the tracepoint carries it: see [`Layout::status_is_errno`].
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
        // SAFETY: `request` comes from the tracepoint, the offset from BTF.
        unsafe { member(self.request, told(&KERNEL.data_len)) }
    }

    /// Whether there is still a bio that waits for the request's end.
    #[inline(always)]
    pub(crate) fn has_bio(&self) -> bool {
        // SAFETY: as above.
        unsafe { member::<u64>(self.request, told(&KERNEL.bio)) != 0 }
    }

    /// `RQF_*`.
    #[inline(always)]
    pub(crate) fn flags(&self) -> u32 {
        // SAFETY: as above.
        unsafe { member(self.request, told(&KERNEL.rq_flags)) }
    }

    #[inline(always)]
    pub(crate) fn op(&self) -> u32 {
        // SAFETY: as above. The lowest byte of the flags is the op.
        unsafe { member::<u32>(self.request, told(&KERNEL.cmd_flags)) & 0xff }
    }

    /// When the request was made; 0 if the kernel took no stamp.
    #[inline(always)]
    pub(crate) fn started(&self) -> u64 {
        // SAFETY: as above.
        unsafe { member(self.request, told(&KERNEL.start_time_ns)) }
    }

    /// When the driver got the request; 0 if the kernel took no stamp.
    #[inline(always)]
    pub(crate) fn handed_over(&self) -> u64 {
        // SAFETY: as above.
        unsafe { member(self.request, told(&KERNEL.io_start_time_ns)) }
    }

    /// The id of the disk; 0 if there is none.
    #[inline(always)]
    pub(crate) fn device(&self) -> u64 {
        // SAFETY: each pointer is a member that the verifier knows the type of; null reads as zero.
        unsafe {
            let mut disk: *const u8 = member(self.request, told(&KERNEL.queue_or_disk));
            if told(&KERNEL.disk_on_queue) != 0 {
                disk = member(disk, told(&KERNEL.queue_disk));
            }
            if told(&KERNEL.id_is_sequence) != 0 {
                member(disk, told(&KERNEL.disk_id))
            } else {
                device_number(member(disk, told(&KERNEL.disk_id)), member(disk, told(&KERNEL.first_minor)))
            }
        }
    }
}

/// Whether these flags are those of a request that the kernel books and that is not part of a flush sequence.
#[inline(always)]
pub(crate) fn is_plain(flags: u32) -> bool {
    flags & (told(&KERNEL.flush_sequence) | told(&KERNEL.io_stat)) == told(&KERNEL.io_stat)
}

#[inline(always)]
pub(crate) fn is_in_flush_sequence(flags: u32) -> bool {
    flags & told(&KERNEL.flush_sequence) != 0
}

#[inline(always)]
pub(crate) fn is_booked(flags: u32) -> bool {
    flags & told(&KERNEL.io_stat) != 0
}

#[inline(always)]
pub(crate) fn is_flush(op: u32) -> bool {
    op == told(&KERNEL.op_flush)
}

#[inline(always)]
pub(crate) fn is_passthrough(op: u32) -> bool {
    op >= told(&KERNEL.op_passthrough)
}

#[inline(always)]
pub(crate) fn status_is_errno() -> bool {
    told(&KERNEL.status_is_errno) != 0
}
