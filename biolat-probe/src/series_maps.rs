//! The collector's operations on the series maps. This is a trait to let tests make any system call fail.

use anyhow::Result;
use biolat_common::{series::Key, size::Counters, slot::Cell};

/// A reading of the counters of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotReading {
    /// The counters summed over the CPUs.
    pub sum: Counters,
    /// Number of requests that have ended on each CPU. These wrap, like all counters.
    pub completions: Vec<u32>,
    /// Whether requests are counted by size.
    pub has_sizes: bool,
}

impl SlotReading {
    /// The reading of a slot that has never been used.
    pub const ZERO: Self = Self { sum: Counters::ZERO, completions: Vec::new(), has_sizes: false };

    /// Adds the counters of the other program, on the same CPUs.
    pub(super) fn add(&mut self, other: &Self) {
        self.sum.merge(&other.sum);
        for (sum, completions) in self.completions.iter_mut().zip(&other.completions) {
            *sum = sum.wrapping_add(*completions);
        }
    }
}

/// The series maps. Except for `add_chunk`, each method makes at most one system call that changes something, so after an error
/// nothing has changed.
pub trait SeriesMaps {
    /// Creates a chunk of slots that are not in the free queue yet. Returns the first slot; `None` if the limit is reached.
    fn add_chunk(&mut self) -> Result<Option<u32>>;

    /// Returns every series with its slot.
    fn index(&mut self) -> Result<Vec<(Key, u32)>>;

    /// Takes a slot from the free queue. `None` if it is empty.
    fn pop_free(&mut self) -> Result<Option<u32>>;

    /// Pushes a slot to the free queue, for a new series.
    fn push_free(&mut self, slot: u32) -> Result<()>;

    /// Adds a series to the index. `false` if it is already there.
    fn insert(&mut self, key: Key, slot: u32) -> Result<bool>;

    /// Removes a series from the index, if it is there. Runs in progress may still write to its slot, so it must not be reused
    /// until they have ended.
    fn remove(&mut self, key: Key) -> Result<()>;

    /// Reads a cell of the table.
    fn cell(&mut self, index: u32) -> Result<Cell>;

    /// Changes a cell of the table.
    fn set_cell(&mut self, index: u32, cell: Cell) -> Result<()>;

    /// Reads the counters of a slot.
    fn read(&mut self, slot: u32) -> Result<SlotReading>;

    /// Requests a grace period that begins after this call, and returns its number.
    fn request_grace_period(&mut self) -> u64;

    /// Whether all runs of the probe that were in progress when this grace period began have ended.
    fn has_ended(&mut self, grace_period: u64) -> bool;

    /// Waits until all runs of the probe that are in progress have ended.
    fn wait_for_runs(&mut self);
}
