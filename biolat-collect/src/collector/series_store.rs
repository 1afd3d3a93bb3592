//! The series in the probe's maps, and their slots. Any system call can fail, so records here change only after the kernel has
//! done its part, and a later call does the rest.

mod kept;
mod moved;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    slot::{CHUNK_SLOTS, Cell, table_cell},
};
use biolat_probe::{SeriesMaps, SlotReading};

use super::{
    reference::Reference,
    state::encoded::Encoded,
    totals::{Growth, Totals},
};

pub(super) use kept::EndedSeries;

#[derive(Default)]
pub(super) struct SeriesStore {
    series: BTreeMap<Key, TrackedSeries>,
    /// Slots of ended series, until no run of the probe can write to them.
    quarantined: VecDeque<Quarantined>,
    /// Slots whose baselines are known only here. They are released once the baselines are kept for the next daemon.
    uncommitted: Vec<u32>,
    /// Slots to be pushed to the free queue; empty unless the kernel refused to take one.
    released: VecDeque<u32>,
    /// Values left in free slots by previous series.
    baselines: BTreeMap<u32, Baseline>,
}

/// A series in the probe's maps.
pub(super) struct TrackedSeries {
    slot: u32,
    /// Whether it is in the table. If not, adding it is retried, because the cell may have become free.
    in_table: bool,
    totals: Box<Totals>,
}

/// Values left in a slot by a previous series.
struct Baseline {
    reading: SlotReading,
    /// The record for the next daemon.
    encoded: Encoded,
}

impl Baseline {
    fn new(reading: SlotReading) -> Self {
        Self { reading, encoded: Encoded::default() }
    }
}

/// A slot whose series has ended. A run of the probe that began earlier can still write to it.
struct Quarantined {
    slot: u32,
    /// Grace period after which such runs have ended.
    grace_period: u64,
}

/// Returns the keys of a device, for all ops.
fn keys_of(id: u64) -> RangeInclusive<Key> {
    Key::new(id, 0)..=Key::new(id, u32::from(u8::MAX))
}

impl SeriesStore {
    pub(super) fn keys(&self) -> impl Iterator<Item = Key> {
        self.series.keys().copied()
    }

    /// Returns all series.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Totals)> {
        self.series.iter().map(|(&key, tracked)| (key, &*tracked.totals))
    }

    /// Returns all series of a device.
    pub(super) fn of_device(&self, id: u64) -> impl Iterator<Item = (Key, &Totals)> {
        self.series.range(keys_of(id)).map(|(&key, tracked)| (key, &*tracked.totals))
    }

    /// Returns all series in slots from `first` on.
    pub(super) fn in_slots_from(&self, first: u32) -> impl Iterator<Item = (Key, &Totals)> {
        let tracked = self.series.iter().filter(move |(_, tracked)| tracked.slot >= first);
        tracked.map(|(&key, tracked)| (key, &*tracked.totals))
    }

    /// Returns how many requests of a device ended on each CPU.
    pub(super) fn completions(&self, id: u64) -> Vec<u64> {
        let mut sum = Vec::new();
        for (_, totals) in self.of_device(id) {
            sum.resize(totals.completions().len().max(sum.len()), 0);
            sum.iter_mut().zip(totals.completions()).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.series.contains_key(&key)
    }

    /// Returns the number of slots in quarantine.
    pub(super) fn quarantined(&self) -> usize {
        self.quarantined.len()
    }

    /// Reads the counters of all series in the index, limited to I/Os in the reference. Returns the growth of each device.
    pub(super) fn read(
        &mut self,
        maps: &mut impl SeriesMaps,
        index: &[(Key, u32)],
        reference: &mut Reference,
    ) -> Result<BTreeMap<u64, Growth>> {
        let mut growth: BTreeMap<u64, Growth> = BTreeMap::new();
        for &(key, slot) in index {
            let now = maps.read(slot)?;
            let tracked = self.track(key, slot);
            let by_workload = reference.take(key, slot);
            let mut grown = tracked.totals.add(now, by_workload.as_ref());
            grown.without_workload = if by_workload.is_none() { grown.total } else { 0 };
            *growth.entry(key.device()).or_default() += grown;
            if !tracked.in_table {
                tracked.in_table = publish(maps, key, slot)?;
            }
        }
        Ok(growth)
    }

    /// Tracks a series that is in the index.
    pub(super) fn track(&mut self, key: Key, slot: u32) -> &mut TrackedSeries {
        self.series.entry(key).or_insert_with(|| {
            let baseline =
                self.baselines.remove(&slot).map_or(SlotReading::ZERO, |baseline| baseline.reading);
            TrackedSeries {
                slot,
                in_table: false,
                totals: Box::new(Totals::from_baseline(key.op(), baseline)),
            }
        })
    }

    /// Creates a series before its first I/O, so even that I/O can take the probe's common case. Returns `false` if no slot is
    /// free.
    pub(super) fn create(&mut self, maps: &mut impl SeriesMaps, key: Key) -> Result<bool> {
        let Some(slot) = maps.pop_free()? else { return Ok(false) };
        match maps.insert(key, slot) {
            Ok(true) => {
                let tracked = self.track(key, slot);
                tracked.in_table = publish(maps, key, slot)?;
                Ok(true)
            }
            // The probe has just created it.
            Ok(false) => self.release(maps, slot).map(|()| true),
            Err(error) => {
                self.released.push_back(slot);
                Err(error)
            }
        }
    }

    /// Ends all series of a device, and calls `ended` with the completions of each. After an error it can be called again for the
    /// rest.
    pub(super) fn end(
        &mut self,
        maps: &mut impl SeriesMaps,
        id: u64,
        mut ended: impl FnMut(u64),
    ) -> Result<()> {
        while let Some((&key, tracked)) = self.series.range_mut(keys_of(id)).next() {
            tracked.in_table = false;
            let (slot, completions) = (tracked.slot, tracked.totals.count());
            if maps.cell(table_cell(key))?.is_of(key) {
                maps.set_cell(table_cell(key), Cell::EMPTY)?;
            }
            maps.remove(key)?;
            self.series.remove(&key);
            self.quarantine(maps, slot);
            ended(completions);
            // Another series whose key maps to the same cell can have the cell now.
            for (_, other) in
                self.series.iter_mut().filter(|(other, _)| table_cell(**other) == table_cell(key))
            {
                other.in_table = false;
            }
        }
        Ok(())
    }

    fn quarantine(&mut self, maps: &mut impl SeriesMaps, slot: u32) {
        let grace_period = maps.request_grace_period();
        self.quarantined.push_back(Quarantined { slot, grace_period });
    }

    /// Ends the quarantine of slots that no run can write to any longer. Their values become the next baselines.
    pub(super) fn end_quarantine(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        self.push_released(maps)?;
        let mut index = None;
        while let Some(&Quarantined { slot, grace_period }) = self.quarantined.front()
            && maps.has_ended(grace_period)
        {
            let index = match &mut index {
                Some(index) => index,
                none => none.insert(maps.index()?),
            };
            // A run of the probe may have taken a slot that looked orphaned when the daemon started.
            if !index.iter().any(|&(_, used)| used == slot) {
                self.baselines.insert(slot, Baseline::new(maps.read(slot)?));
                self.uncommitted.push(slot);
            }
            self.quarantined.pop_front();
        }
        Ok(())
    }

    /// Whether there are slots that can be released once their baselines are kept.
    pub(super) fn has_uncommitted(&self) -> bool {
        !self.uncommitted.is_empty()
    }

    /// Returns slots to the probe. Their baselines have been kept for the next daemon, unless nothing is kept.
    pub(super) fn release_committed(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        self.released.extend(self.uncommitted.drain(..));
        self.push_released(maps)
    }

    /// Adds a chunk of slots, which are released in the same way as slots from quarantine. Returns `false` if the limit is
    /// reached.
    pub(super) fn grow(&mut self, maps: &mut impl SeriesMaps) -> Result<bool> {
        let Some(first) = maps.add_chunk()? else { return Ok(false) };
        self.uncommitted.extend(first..first + CHUNK_SLOTS);
        Ok(true)
    }

    fn release(&mut self, maps: &mut impl SeriesMaps, slot: u32) -> Result<()> {
        self.released.push_back(slot);
        self.push_released(maps)
    }

    fn push_released(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        while let Some(&slot) = self.released.front() {
            maps.push_free(slot)?;
            self.released.pop_front();
        }
        Ok(())
    }
}

/// Adds a series to the table, for the probe's common case. Returns `false` if its cell belongs to a series that is likely to be
/// busier; the probe then keeps finding this one in the index.
fn publish(maps: &mut impl SeriesMaps, key: Key, slot: u32) -> Result<bool> {
    let cell = maps.cell(table_cell(key))?;
    if cell.yields_to(key) {
        maps.set_cell(table_cell(key), Cell::new(key, slot))?;
        return Ok(true);
    }
    Ok(cell.is_of(key))
}
