//! Where the counters of a series are. A slot is an index into a per-CPU array, whose size the daemon chooses when it
//! loads the probe. Further slots are in chunks, arrays of a few slots that the daemon creates on demand and that cost one
//! more lookup. So memory is proportional to the series in use.
//!
//! The table answers the common case in one load: a cell holds a key and its slot in one number, and only the daemon
//! writes it. The index, a hash map of the same keys, is authoritative, and the only place where the probe creates a series. A
//! cell that is empty or holds another key costs a lookup in the index.

use crate::series::Key;

/// Slots of one chunk.
pub const CHUNK_SLOTS: u32 = 4;
/// Upper limit of chunks, including those whose slots are in the first array.
pub const CHUNKS: u32 = 1024;
/// Upper limit of series.
pub const SLOTS: u32 = CHUNK_SLOTS * CHUNKS;
/// Cells of the table: few enough for the kernel to allocate it physically contiguous.
pub const TABLE_CELLS: u32 = 2048;

/// A cell of the table: a key and the slot of its series. Zero is an empty cell, because no device has the id zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Cell(u64);

impl Cell {
    /// An empty cell.
    pub const EMPTY: Self = Self(0);

    /// A cell that maps `key` to `slot`.
    #[must_use]
    pub const fn new(key: Key, slot: u32) -> Self {
        Self(key.bits() << 16 | slot as u64)
    }

    /// A cell that was read from the table.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a new series replaces the one in this cell. Ops with lower numbers are more frequent.
    #[must_use]
    pub const fn yields_to(self, key: Key) -> bool {
        self.0 == Self::EMPTY.0 || Key::from_bits(self.0 >> 16).op() > key.op()
    }

    /// The cell as it is stored in the table.
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

/// The only cell that can hold this key. Reads, writes and flushes of one device share a cache line; they collide only with
/// rare ops of devices with similar ids, and with devices whose ids differ by a multiple of 256.
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
