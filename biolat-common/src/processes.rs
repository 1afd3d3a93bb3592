//! The ABI of the programs that count I/Os by process: `biolat processes`.
//!
//! The start program stores the process that submits a request in an array, at a place computed from the request's device,
//! hardware queue and tag. The completion program takes it from there.

use core::mem::{align_of, size_of};

use crate::{series::Key, size::BAND_CELLS};

/// Number of cells in the table of names, a power of two.
pub const NAME_CELLS: u32 = 4096;

/// Size of the ring buffer for single I/Os, in bytes.
pub const RING_BYTES: usize = 1 << 20;

/// Size of one I/O in the ring buffer, including its header.
pub const RECORD_BYTES: usize = 8 + size_of::<IoRecord>();

/// Longest name of a process, in bytes: the kernel's `TASK_COMM_LEN`.
pub const NAME_BYTES: usize = 16;

/// Constants that only these programs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessConstants {
    /// `request.mq_hctx`.
    pub request_hctx: u32,
    /// `request.tag`, which is negative until a request with a scheduler is dispatched.
    pub request_tag: u32,
    /// `request.internal_tag`, which is negative without a scheduler.
    pub request_internal_tag: u32,
    /// `blk_mq_hw_ctx.queue_num`.
    pub hctx_number: u32,
    /// `task_struct.group_leader`.
    pub task_leader: u32,
    /// `task_struct.comm`.
    pub task_comm: u32,
    /// Offset of the request in the arguments of the start tracepoint, in bytes: 0, or 8 if the queue comes first.
    pub start_request: u32,
    /// 1 if single I/Os are sent, 0 if they are counted.
    pub sends_ios: u32,
}

/// Returns the process's cell in the table of names.
#[inline(always)]
#[must_use]
pub const fn name_cell(process: u32) -> u32 {
    process & (NAME_CELLS - 1)
}

/// A device and its region in the array of processes. I/O of a device without a region is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// The device's id: see [`crate::kernel::KernelLayout::disk_id`]. 0 in an empty cell.
    pub device: u64,
    /// Index of its first entry.
    pub base: u32,
    /// Number of hardware queues.
    pub queues: u32,
    /// Number of tags per queue.
    pub tags: u32,
    /// Always zero.
    pub padding: u32,
}

impl Region {
    /// Returns the index of the entry for a tag, or `None` if the region has none for it.
    #[inline(always)]
    #[must_use]
    pub const fn entry(self, queue: u32, tag: u32) -> Option<u32> {
        if queue >= self.queues || tag >= self.tags {
            return None;
        }
        Some(self.base.wrapping_add(queue.wrapping_mul(self.tags)).wrapping_add(tag))
    }
}

/// Key of the counters of a process: its series, thread group and [`Control::epoch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessKey {
    /// Device and op.
    pub series: Key,
    /// Thread group id; 0 if unknown.
    pub process: u32,
    /// The epoch in which the I/Os completed.
    pub epoch: u32,
}

/// Counters of a process in one epoch, on one CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Usage {
    /// Bytes transferred.
    pub bytes: u64,
    /// Failed I/Os.
    pub errors: u64,
    /// Sum of the latencies in [`Self::cells`], in nanoseconds.
    pub device_ns: u64,
    /// I/Os by device latency: see [`crate::size::band_cell`]. Without a dispatch timestamp, the total latency takes its place.
    pub cells: [u32; BAND_CELLS],
}

impl Usage {
    /// All counters at zero.
    pub const ZERO: Self = Self { bytes: 0, errors: 0, device_ns: 0, cells: [0; BAND_CELLS] };
}

/// A process and its name, captured at its first I/O in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessName {
    /// Thread group id in the low half, [`Control::epoch`] in the high half.
    pub owner: u64,
    /// `comm` of the thread group's leader, padded with zero bytes.
    pub comm: [u64; NAME_BYTES / 8],
}

impl ProcessName {
    /// Returns the [`owner`](Self::owner) for a process and an epoch.
    #[inline(always)]
    #[must_use]
    pub const fn owner(process: u32, epoch: u32) -> u64 {
        process as u64 | (epoch as u64) << 32
    }
}

/// What user space changes while the programs are attached. Both programs read it with one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Control {
    /// Incremented at the end of each window.
    pub epoch: u32,
    /// One of this many I/Os on a CPU is sent. A power of two.
    pub one_of: u32,
}

impl Control {
    /// The initial value.
    pub const FIRST: Self = Self { epoch: 1, one_of: 1 };

    /// Returns the value as one number.
    #[inline(always)]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.epoch as u64 | (self.one_of as u64) << 32
    }

    /// The inverse of [`bits`](Self::bits).
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self { epoch: bits as u32, one_of: (bits >> 32) as u32 }
    }
}

/// Numbers of single I/Os on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct IoCounts {
    /// I/Os that completed.
    pub completed: u64,
    /// I/Os that were not sent because the ring buffer was full.
    pub dropped: u64,
}

/// One I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct IoRecord {
    /// Completion time, on the same clock as the request's timestamps.
    pub completed_ns: u64,
    /// Device and op.
    pub series: Key,
    /// First sector, in units of 512 bytes.
    pub sector: u64,
    /// Time from allocation to dispatch.
    pub queue_ns: u64,
    /// Time from dispatch to completion or, without a dispatch timestamp, from allocation.
    pub device_ns: u64,
    /// Bytes transferred.
    pub bytes: u32,
    /// Thread group id; 0 if unknown.
    pub process: u32,
    /// Block status: see [`crate::status`].
    pub status: u32,
    /// [`Control::one_of`].
    pub one_of: u32,
}

const _: () = {
    assert!(size_of::<Region>() == 24);
    assert!(size_of::<ProcessKey>() == 16);
    assert!(size_of::<Usage>() == 24 + BAND_CELLS * 4);
    assert!(size_of::<ProcessName>() == 24);
    assert!(size_of::<IoRecord>() == 56 && align_of::<IoRecord>() == 8);
    assert!(NAME_CELLS.is_power_of_two());
};

impl IoRecord {
    /// Decodes a record from the ring buffer. `None` if its size is wrong.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let &[completed_ns, series, sector, queue_ns, device_ns, a, b] = words else { return None };
        let word = u64::from_ne_bytes;
        let halves = |[b0, b1, b2, b3, b4, b5, b6, b7]: [u8; 8]| {
            (u32::from_ne_bytes([b0, b1, b2, b3]), u32::from_ne_bytes([b4, b5, b6, b7]))
        };
        let ((bytes, process), (status, one_of)) = (halves(a), halves(b));
        rest.is_empty().then_some(Self {
            completed_ns: word(completed_ns),
            series: Key::from_bits(word(series)),
            sector: word(sector),
            queue_ns: word(queue_ns),
            device_ns: word(device_ns),
            bytes,
            process,
            status,
            one_of,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, IoRecord, Region};
    use crate::series::Key;

    #[test]
    fn entries_stay_within_their_region() {
        let region = Region { device: 9, base: 100, queues: 2, tags: 16, padding: 0 };
        assert_eq!((region.entry(0, 0), region.entry(1, 15)), (Some(100), Some(131)));
        assert_eq!((region.entry(2, 0), region.entry(0, 16), region.entry(0, u32::MAX)), (None, None, None));
        assert_eq!(Region::default().entry(0, 0), None);
    }

    #[test]
    fn control_is_one_number() {
        let control = Control { epoch: 7, one_of: 64 };
        assert_eq!(Control::from_bits(control.bits()), control);
    }

    #[test]
    fn decodes_an_encoded_record() {
        let record = IoRecord {
            completed_ns: 1,
            series: Key::new(45, 1),
            sector: 3,
            queue_ns: 4,
            device_ns: 5,
            bytes: 6,
            process: 7,
            status: 8,
            one_of: 9,
        };
        // SAFETY: integers without padding.
        let bytes: [u8; size_of::<IoRecord>()] = unsafe { core::mem::transmute(record) };
        assert_eq!(IoRecord::from_bytes(&bytes), Some(record));
        assert_eq!(IoRecord::from_bytes(&bytes[1..]), None);
    }
}
