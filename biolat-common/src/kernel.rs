//! The layout of the running kernel's structs that the probe needs.

/// Offsets of struct members, flag masks and op numbers from the running kernel's BTF, except two request flags, which are not in
/// BTF before 6.11 and had the same bits from 5.8 to 6.10. Versions in this file are mainline versions; stable series may have
/// backports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct KernelLayout {
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
    /// `request.rq_disk`, or `request.q` on kernels without it (5.17 and later).
    pub queue_or_disk: u32,
    /// `request_queue.disk`.
    pub queue_disk: u32,
    /// 1 if the queue points to the disk, 0 if the request does (before 5.17).
    pub disk_on_queue: u32,
    /// `gendisk.diskseq`, or `kernfs_node.id` on kernels without it (before 5.15).
    pub disk_id: u32,
    /// `kobject.sd`, the sysfs directory: relative to the disk, or to the block device that `gendisk.part0` points to. This and
    /// the next two members are 0 on kernels with `diskseq`.
    pub disk_directory: u32,
    /// `gendisk.part0`, if it is a pointer.
    pub disk_part0: u32,
    /// 1 if `gendisk.part0` is a pointer (5.11 and later), 0 if it is embedded in the disk.
    pub part0_is_pointer: u32,
    /// 1 if a device's id is its disk sequence number, 0 if it is derived from the inode number of its sysfs directory. Neither
    /// is ever reused.
    pub id_is_sequence: u32,
    /// `RQF_FLUSH_SEQ`, as a mask.
    pub flush_sequence: u32,
    /// `RQF_IO_STAT`, as a mask.
    pub io_stat: u32,
    /// `REQ_OP_FLUSH`.
    pub op_flush: u32,
    /// The lowest passthrough op.
    pub op_passthrough: u32,
    /// 1 if the tracepoint passes an errno instead of a status (before 5.16).
    pub status_is_errno: u32,
    /// `request.__sector`.
    pub sector: u32,
    /// `request.alloc_time_ns`; 0 on kernels built without `CONFIG_BLK_RQ_ALLOC_TIME`.
    pub alloc_time_ns: u32,
    /// 1 if the request has `alloc_time_ns`.
    pub has_alloc_time: u32,
    /// `bio.bi_issue`, or `bio.issue_time_ns` (6.18 and later); 0 on kernels built without `CONFIG_BLK_CGROUP`, which have
    /// neither.
    pub bio_issue: u32,
    /// Which member is at `bio_issue`: one of the constants in [`bio_issue`].
    pub bio_issue_kind: u32,
    /// `request_queue.queue_flags`.
    pub queue_flags: u32,
    /// `QUEUE_FLAG_BIO_ISSUE_TIME`, as a mask, on kernels with `issue_time_ns`. It is set on queues with io.latency.
    pub queue_has_issue_times: u32,
    /// Offset of the request in the arguments of the tracepoint `block_rq_requeue`, in bytes: 0, or 8 if the queue comes first
    /// (before 5.11, but not in late releases of 5.10).
    pub requeue_request: u32,
    /// `task_struct.files`. This and the members up to `request_hctx` are for surveys of requests in flight. All are 0 if one of
    /// them is missing.
    pub task_files: u32,
    /// `files_struct.fdt`.
    pub files_fdt: u32,
    /// `fdtable.fd`.
    pub fdt_fd: u32,
    /// `file.f_inode`.
    pub file_inode: u32,
    /// `inode.i_private`.
    pub inode_private: u32,
    /// `kernfs_node.priv`.
    pub kernfs_priv: u32,
    /// `blk_mq_hw_ctx.kobj`.
    pub hctx_kobj: u32,
    /// `blk_mq_hw_ctx.tags`.
    pub hctx_tags: u32,
    /// `blk_mq_hw_ctx.sched_tags`.
    pub hctx_sched_tags: u32,
    /// `blk_mq_tags.nr_tags`.
    pub tags_nr: u32,
    /// `blk_mq_tags.static_rqs`.
    pub tags_static_rqs: u32,
    /// `request.mq_hctx`.
    pub request_hctx: u32,
    /// `bio.bi_blkg`. This and the members below are for workloads. All are 0 if one of them is missing.
    pub bio_blkg: u32,
    /// `blkcg_gq.blkcg`.
    pub blkg_blkcg: u32,
    /// `cgroup_subsys_state.serial_nr`, relative to `struct blkcg`.
    pub blkcg_serial: u32,
    /// `cgroup_subsys_state.cgroup`, relative to `struct blkcg`.
    pub blkcg_cgroup: u32,
    /// `cgroup_subsys_state.flags`, relative to `struct blkcg`.
    pub blkcg_flags: u32,
    /// `CSS_ONLINE`.
    pub css_online: u32,
    /// `cgroup.kn`.
    pub cgroup_node: u32,
    /// `kernfs_node.name`.
    pub kernfs_name: u32,
    /// `kernfs_node.__parent`, or `kernfs_node.parent` (before 6.15).
    pub kernfs_parent: u32,
    /// `BLK_MQ_REQ_RESERVED`, a mask. This and the next member are 0 on kernels without the tracepoint `block_rq_tag_wait`.
    pub req_reserved: u32,
    /// `blk_mq_tags.bitmap_tags.sb.depth`.
    pub tags_depth: u32,
}

/// Values of [`KernelLayout::bio_issue_kind`].
pub mod bio_issue {
    use crate::bucket::positive;

    /// The kernel takes no timestamp at submission.
    pub const NONE: u32 = 0;
    /// `bi_issue.value`: nanoseconds in the low 51 bits, flags above them.
    pub const VALUE: u32 = 1;
    /// `issue_time_ns`.
    pub const NANOSECONDS: u32 = 2;
    /// Number of flag bits in a [`VALUE`].
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h>
    const VALUE_FLAG_BITS: u32 = 13;

    /// Returns the nanoseconds from a [`VALUE`] to a timestamp: 0 if the timestamp is earlier, `None` if the value is 0.
    ///
    /// The value wraps after 26 days. The result is right across a wrap, unless the I/O waited for more than 13 days.
    #[inline(always)]
    #[must_use]
    pub const fn wait(value: u64, timestamp: u64) -> Option<u64> {
        let value = value << VALUE_FLAG_BITS;
        if value == 0 {
            return None;
        }
        Some(positive((timestamp << VALUE_FLAG_BITS).wrapping_sub(value)) >> VALUE_FLAG_BITS)
    }

    #[cfg(test)]
    mod tests {
        use super::wait;

        #[test]
        fn wait_across_a_wrap() {
            const WRAP: u64 = 1 << 51;
            const FLAGS: u64 = 0b101 << 60;
            for (submitted, allocated, expected) in [
                (1_000, 1_500, 500),
                (WRAP - 200, WRAP - 100, 100),
                (WRAP - 100, WRAP + 400, 500),
                (WRAP + 5, WRAP + 2_000_000_005, 2_000_000_000),
                (7 * WRAP - 1, 7 * WRAP + 1, 2),
                // Bios merged in front of the request after its allocation, the second one across a wrap.
                (1_500, 1_000, 0),
                (WRAP + 100, WRAP - 400, 0),
            ] {
                let value = (submitted % WRAP) | FLAGS;
                assert_eq!(wait(value, allocated), Some(expected), "{submitted} {allocated}");
            }
            assert_eq!(wait(0, 5), None);
            assert_eq!(wait(FLAGS, 5), None);
        }
    }
}

/// Derives the id of a device from the inode number of its sysfs directory, for kernels without disk sequence numbers. sysfs
/// numbers its inodes consecutively, and all disks have about the same number of inodes. Mixing moves the bits that differ to the
/// low end, which selects the table cell.
#[inline(always)]
#[must_use]
pub const fn directory_id(inode: u64) -> u64 {
    inode ^ inode >> 8
}

/// Number of cells in a table of devices, a power of two.
pub const DEVICE_CELLS: u32 = 1024;

const _: () = assert!(DEVICE_CELLS.is_power_of_two());

/// Returns the cell of the device with this id in a table of devices.
#[inline(always)]
#[must_use]
pub const fn device_cell(device: u64) -> u32 {
    device as u32 & (DEVICE_CELLS - 1)
}
