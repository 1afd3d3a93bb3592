//! What the daemon tells the probe of the running kernel, in a read-only global that the verifier takes as
//! constants: a branch on a flag here costs nothing, as the verifier removes the side not taken.

/// Member offsets, flags and numbers, all from the kernel's BTF.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    /// `request.cmd_flags`.
    pub cmd_flags: u32,
    /// `request.rq_flags`.
    pub rq_flags: u32,
    /// `request.__data_len`.
    pub data_len: u32,
    /// `request.bio`.
    pub bio: u32,
    /// `request.start_time_ns`.
    pub start_time_ns: u32,
    /// `request.io_start_time_ns`.
    pub io_start_time_ns: u32,
    /// `request.rq_disk`, or `request.q` where there is none (5.17 and later).
    pub queue_or_disk: u32,
    /// `request_queue.disk`.
    pub queue_disk: u32,
    /// 1 where the disk hangs on the queue, 0 where it hangs on the request (before 5.17).
    pub disk_on_queue: u32,
    /// `gendisk.diskseq`, or `gendisk.major` where there is none (before 5.15).
    pub disk_id: u32,
    /// `gendisk.first_minor`.
    pub first_minor: u32,
    /// 1 where a device's id is its sequence number, which is never used twice; 0 where it is its `dev_t`.
    pub id_is_sequence: u32,
    /// `RQF_FLUSH_SEQ` as a mask.
    pub flush_sequence: u32,
    /// `RQF_IO_STAT` as a mask.
    pub io_stat: u32,
    /// `REQ_OP_FLUSH`.
    pub op_flush: u32,
    /// The lowest passthrough op.
    pub op_passthrough: u32,
    /// 1 where the tracepoint carries an errno instead of a status (before 5.16).
    pub status_is_errno: u32,
}

/// The id of a device by its numbers, where there is no sequence number: the kernel's own `dev_t`.
#[inline(always)]
#[must_use]
pub const fn device_number(major: u32, minor: u32) -> u64 {
    (major as u64) << 20 | minor as u64
}
