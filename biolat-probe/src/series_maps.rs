//! What the collector does with the maps of series. A trait, so that its tests can let any system call fail.

use anyhow::Result;
use biolat_common::{series::Key, size::Counters, slot::Cell};

/// The counters of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotReading {
    /// Summed over the CPUs.
    pub sum: Counters,
    /// Requests that have ended on each CPU. They wrap like every counter.
    pub completions: Vec<u32>,
    /// Whether requests are counted by size.
    pub has_sizes: bool,
}

impl SlotReading {
    /// Of a slot that has never been used.
    pub const ZERO: Self = Self { sum: Counters::ZERO, completions: Vec::new(), has_sizes: false };
}

/// The maps of series. A method makes one system call that changes something: after an error, nothing has changed.
pub trait SeriesMaps {
    /// Creates a chunk of slots, which are not in the free queue yet. Returns the first one; none if the limit is reached.
    fn add_chunk(&mut self) -> Result<Option<u32>>;

    /// Every series and its slot.
    fn index(&mut self) -> Result<Vec<(Key, u32)>>;

    /// Takes a slot out of the free queue; none if it is empty.
    fn pop_free(&mut self) -> Result<Option<u32>>;

    /// Adds a slot to the free queue, for the next new series.
    fn push_free(&mut self, slot: u32) -> Result<()>;

    /// Adds a series to the index. `false`: it is there already.
    fn insert(&mut self, key: Key, slot: u32) -> Result<bool>;

    /// Removes a series from the index, if it is there. Runs of the probe that are in progress may still write to its slot,
    /// which must not be reused before they have ended.
    fn remove(&mut self, key: Key) -> Result<()>;

    /// A cell of the table.
    fn cell(&mut self, index: u32) -> Result<Cell>;

    /// Changes a cell of the table.
    fn set_cell(&mut self, index: u32, cell: Cell) -> Result<()>;

    /// The counters of a slot.
    fn read(&mut self, slot: u32) -> Result<SlotReading>;

    /// Asks for a grace period that begins after this call; returns its number.
    fn request_grace_period(&mut self) -> u64;

    /// Whether all runs of the probe have ended that were in progress when this grace period began.
    fn has_ended(&mut self, grace_period: u64) -> bool;

    /// Waits until all runs of the probe have ended that are in progress.
    fn wait_for_runs(&mut self);
}
