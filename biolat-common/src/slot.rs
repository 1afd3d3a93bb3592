//! Where the counters of a series are stored. The CPUs are divided into banks. The counters of the first bank are in one array,
//! with a value for each slot, whose length the daemon chooses when it loads the probe. Further slots, and all slots of other banks,
//! are in chunks: arrays of a few slots each, which the daemon creates on demand, one for each bank. They cost one more lookup.
//! Memory is therefore proportional to the number of series and of CPUs that have been online.
//!
//! The table answers the common case with one load: a cell packs a key and its slot into one integer, and only the daemon writes
//! it. The index, a hash map with the same keys, is authoritative; the probe creates series only there, and consults it if a cell
//! is empty or holds another key.

use crate::series::Key;

/// Number of slots in a chunk.
pub const CHUNK_SLOTS: u32 = 4;
/// Upper limit on chunks.
pub const CHUNKS: u32 = 1024;
/// Upper limit on slots, and therefore on series.
pub const SLOTS: u32 = CHUNK_SLOTS * CHUNKS;
/// Upper limit on banks.
pub const BANKS: u32 = 32;
/// Number of cells of the table: small enough for the kernel to allocate it in physically contiguous memory. Larger maps come
/// from vmalloc, in 4-KiB mappings, which cost a TLB miss.
pub const TABLE_CELLS: u32 = 2048;

/// The index of a chunk of a bank.
#[inline(always)]
#[must_use]
pub const fn array_index(chunk: u32, bank: u32) -> u32 {
    bank * CHUNKS + chunk
}

/// Where the counters of a CPU are: in every array of a bank, each value has a row for each of the bank's CPUs. A number: the bank
/// in the upper half, the row in the lower, so a place in the first bank is equal to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct CpuPlace(u64);

impl CpuPlace {
    /// The place of a CPU that has no counters yet. Its row is beyond any bank's.
    pub const NONE: Self = Self(u64::MAX);

    /// Creates the place in this row of a bank.
    #[inline(always)]
    #[must_use]
    pub const fn new(bank: u32, row: u32) -> Self {
        Self((bank as u64) << 32 | row as u64)
    }

    /// Decodes a place from a map, where zero stands for [`Self::NONE`].
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits.wrapping_sub(1))
    }

    /// The place as stored in a map.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0.wrapping_add(1)
    }

    /// The place as a number.
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Reverses [`Self::number`].
    #[inline(always)]
    #[must_use]
    pub const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// The number of the bank.
    #[inline(always)]
    #[must_use]
    pub const fn bank(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The row of the CPU in its bank.
    #[inline(always)]
    #[must_use]
    pub const fn row(self) -> u32 {
        self.0 as u32
    }
}

/// A cell of the table: a key and the slot of its series. Zero is an empty cell, because no device has id 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Cell(u64);

impl Cell {
    /// An empty cell.
    pub const EMPTY: Self = Self(0);

    /// Creates a cell that maps `key` to `slot`.
    #[must_use]
    pub const fn new(key: Key, slot: u32) -> Self {
        Self(key.bits() << 16 | slot as u64)
    }

    /// Decodes a cell of the table.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a new series should replace the one in this cell. Ops with lower numbers are more frequent.
    #[must_use]
    pub const fn yields_to(self, key: Key) -> bool {
        self.0 == Self::EMPTY.0 || Key::from_bits(self.0 >> 16).op() > key.op()
    }

    /// The cell as stored in the table.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether this cell belongs to `key`.
    #[inline(always)]
    #[must_use]
    pub const fn is_of(self, key: Key) -> bool {
        self.0 >> 16 == key.bits()
    }

    /// The series.
    #[must_use]
    pub const fn key(self) -> Key {
        Key::from_bits(self.0 >> 16)
    }

    /// The slot of the series.
    #[inline(always)]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32 & (SLOTS - 1)
    }
}

/// The only cell that can hold this key. Reads, writes and flushes of a device share a cache line. They collide only with rare
/// ops of devices with similar ids, and with devices whose ids differ by a multiple of 256.
#[inline(always)]
#[must_use]
pub const fn table_cell(key: Key) -> u32 {
    ((key.device() << 3) as u32 ^ key.op()) & (TABLE_CELLS - 1)
}

const _: () = {
    assert!(SLOTS.is_power_of_two() && SLOTS <= 1 << 16);
    assert!(TABLE_CELLS.is_power_of_two());
    assert!(CHUNK_SLOTS.is_power_of_two());
};
