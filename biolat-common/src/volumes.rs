//! The ABI of the programs that measure volumes: dm, md, zram and other devices that have bios instead of requests.
//!
//! The start program notes when a bio was submitted, in a table. The completion program takes the note from there.

use core::mem::size_of;

use crate::{bucket::CELLS, hash::spread, status::STATUSES};

/// Maximum number of volumes that are measured at the same time.
pub const MAX_VOLUMES: u32 = 256;

/// Number of sets in the table of starts, a power of two.
pub const SETS: u32 = 1 << SET_BITS;
const SET_BITS: u32 = 13;

/// Number of starts in a set: as many as fit into a cache line.
pub const SET_STARTS: usize = 4;

/// Constants that only these programs need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct VolumeConstants {
    /// `bio.bi_bdev`, or `bio.bi_disk` (before 5.12).
    pub bio_device: u32,
    /// `block_device.bd_disk`.
    pub device_disk: u32,
    /// 1 if the bio points to the disk itself.
    pub bio_has_disk: u32,
    /// `bio.bi_opf`.
    pub bio_flags: u32,
    /// `bio.bi_status`.
    pub bio_status: u32,
    /// `bio.bi_iter.bi_size`.
    pub bio_bytes: u32,
    /// `gendisk.queue`.
    pub disk_queue: u32,
    /// `REQ_OP_DISCARD`.
    pub op_discard: u32,
    /// Offset of the bio in the arguments of `block_bio_queue`, in bytes: 0, or 8 if the queue comes first.
    pub start_bio: u32,
}

/// A volume that is measured. I/O of other devices is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Volume {
    /// The device's id: see [`crate::kernel::KernelLayout::disk_id`]. 0 in an empty cell.
    pub device: u64,
    /// Index of its counters.
    pub counters: u32,
    /// Always zero.
    pub padding: u32,
}

/// Returns the index of the counters of an op: its group in the disk statistics. Empty flushes are writes.
#[inline(always)]
#[must_use]
pub const fn group(op: u32, op_discard: u32) -> u32 {
    const DISCARD: u32 = 2;
    if op == op_discard { DISCARD } else { op & 1 }
}

/// Number of groups: read, write, discard.
pub const GROUPS: u32 = 3;

/// Number of entries in the counters of a volume: one per group for the first programs, then one per group for the understudies.
pub const ENTRIES: u32 = 2 * GROUPS;

/// What the programs of a role have done besides counting, on one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Tally {
    /// Starts that had to make room for others.
    pub evicted: u64,
    /// Starts noted and bios counted.
    pub taken: u64,
}

/// Counters of a volume and a group, on one CPU. All of them wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct VolumeCounters {
    /// Bytes transferred.
    pub bytes: u64,
    /// Sum of the latencies.
    pub total_ns: u64,
    /// Failed I/Os by status.
    pub errors: [u32; STATUSES],
    /// Always zero.
    pub padding: u32,
    /// I/Os by latency.
    pub cells: [u32; CELLS],
}

impl VolumeCounters {
    /// All counters at zero.
    pub const ZERO: Self =
        Self { bytes: 0, total_ns: 0, errors: [0; STATUSES], padding: 0, cells: [0; CELLS] };
}

/// The start of a bio. All zeros if the place is free.
///
/// Each half has some bits of the bio's hash. If two CPUs write the same place at the same time, the halves may be of different
/// bios, and then match neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Start {
    /// Time in the low 48 bits.
    pub time: u64,
    /// Bytes in the low 32 bits.
    pub bytes: u64,
}

const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

/// Identifies a bio in the table of starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BioKey(u64);

impl BioKey {
    /// The key of the bio at this address on this device.
    #[inline(always)]
    #[must_use]
    pub const fn new(address: u64, device: u64) -> Self {
        Self(spread(address ^ device.rotate_left(48)))
    }

    /// The set that the bio belongs to.
    #[inline(always)]
    #[must_use]
    pub const fn set(self) -> u32 {
        (self.0 >> (u64::BITS - SET_BITS)) as u32
    }

    /// The bio's start.
    #[inline(always)]
    #[must_use]
    pub const fn start(self, now: u64, bytes: u32) -> Start {
        Start { time: now & TIME_MASK | self.time_tag(), bytes: bytes as u64 | self.bytes_tag() }
    }

    /// Whether this is the bio's start.
    #[inline(always)]
    #[must_use]
    pub const fn owns(self, start: Start) -> bool {
        (start.time ^ self.time_tag()) & !TIME_MASK == 0 && (start.bytes ^ self.bytes_tag()) >> 32 == 0
    }

    #[inline(always)]
    const fn time_tag(self) -> u64 {
        self.0 << TIME_BITS
    }

    /// Never 0, so a free place matches no bio.
    #[inline(always)]
    const fn bytes_tag(self) -> u64 {
        self.0 << 16 & !(u32::MAX as u64) | 1 << 32
    }
}

impl Start {
    /// Whether the place is free.
    #[inline(always)]
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.bytes == 0
    }

    /// Nanoseconds since the start; 0 if another CPU noted it later than `now`.
    #[inline(always)]
    #[must_use]
    pub const fn age(self, now: u64) -> u64 {
        let elapsed = self.elapsed(now);
        if elapsed >> (TIME_BITS - 1) != 0 { 0 } else { elapsed }
    }

    /// Nanoseconds since the start. It wraps after 78 hours.
    #[inline(always)]
    #[must_use]
    pub const fn elapsed(self, now: u64) -> u64 {
        now.wrapping_sub(self.time) & TIME_MASK
    }
}

const _: () = {
    assert!(size_of::<Volume>() == 16 && size_of::<Start>() == 16);
    assert!(size_of::<VolumeCounters>() == 104 + CELLS * 4);
};

#[cfg(test)]
mod tests {
    use super::{BioKey, Start};

    #[test]
    fn only_the_owner_of_a_start_recognizes_it() {
        let (one, other) = (BioKey::new(0xffff_8880_1234_5600, 7), BioKey::new(0xffff_8880_1234_5700, 7));
        let start = one.start(5_000, 4096);
        assert!(one.owns(start) && !other.owns(start) && !start.is_free());
        assert_eq!((start.elapsed(7_500), start.bytes as u32), (2_500, 4096));
        let torn = Start { time: start.time, bytes: other.start(5_000, 512).bytes };
        assert!(!one.owns(torn) && !other.owns(torn));
        assert_ne!(one, BioKey::new(0xffff_8880_1234_5600, 8), "the same bio on another device");
        assert!(Start::default().is_free() && !one.owns(Start::default()));
        assert!(!one.start(0, 0).is_free(), "an empty flush");
    }

    #[test]
    fn elapsed_time_across_a_wrap() {
        let key = BioKey::new(1, 1);
        let begun = (1 << 48) - 10;
        assert_eq!(key.start(begun, 0).elapsed(begun + 30), 30);
        assert_eq!((key.start(begun, 0).age(begun + 30), key.start(begun + 5, 0).age(begun)), (30, 0));
    }
}
