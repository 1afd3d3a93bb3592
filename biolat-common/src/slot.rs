//! Where the counters of a series are. A slot is a number in a per-CPU array as large as the daemon foresees when it
//! loads the probe. What comes beyond is in chunks, arrays of a few slots that the daemon makes when they are needed,
//! one step further away. So memory follows the series in use.
//!
//! The table answers the common case in one load: a cell holds a key and its slot in one number, and only
//! the daemon writes it. The index (a hash of the same keys) is the authority, and the only place where the
//! probe makes a series. A cell that is empty, or taken by another key, costs a look-up there and nothing else.

use crate::series::Key;

/// Slots of one chunk.
pub const CHUNK_SLOTS: u32 = 4;
/// Most chunks that there can be, the place of the first slots included.
pub const CHUNKS: u32 = 1024;
/// Most series that there can be.
pub const SLOTS: u32 = CHUNK_SLOTS * CHUNKS;
/// Cells of the table: so few that the kernel keeps them in one piece of memory.
pub const TABLE_CELLS: u32 = 2048;

/// A cell of the table: a key and the slot of its series. Zero is empty, as no device has the id zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct Cell(u64);

impl Cell {
    /// The cell of no series.
    pub const EMPTY: Self = Self(0);

    /// A cell that leads from `key` to `slot`.
    #[must_use]
    pub const fn new(key: Key, slot: u32) -> Self {
        Self(key.bits() << 16 | slot as u64)
    }

    /// From the bits that the table holds.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Whether a series that comes now takes this cell over. The lower a kernel's op, the more often it is used.
    #[must_use]
    pub const fn yields_to(self, key: Key) -> bool {
        self.0 == Self::EMPTY.0 || Key::from_bits(self.0 >> 16).op() > key.op()
    }

    /// The cell as the table holds it.
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

    /// The slot that this cell leads to.
    #[inline(always)]
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.0 as u32 & (SLOTS - 1)
    }
}

/// The one cell where a key may stand. A device's reads, writes and flushes are on one cache line, and meet only rare
/// ops of devices that are near, or devices that are 256 off.
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
