//! The store when the probe is replaced: its series get slots in the maps of another one.

use anyhow::{Context as _, Result, ensure};
use biolat_common::series::Key;
use biolat_probe::{SeriesMaps, SlotReading};

use super::{super::reference::Reference, SeriesStore};

impl SeriesStore {
    /// Creates series in the maps of a probe that nobody has used yet.
    pub(in crate::collector) fn create_in(&self, maps: &mut impl SeriesMaps, keys: &[Key]) -> Result<()> {
        let mut store = Self::default();
        for &key in keys {
            while !store.create(maps, key)? {
                ensure!(store.grow(maps)?, "there are too many series");
                store.release_committed(maps)?;
            }
        }
        Ok(())
    }

    /// The requeues of the series in the slots before this one.
    pub(in crate::collector) fn requeues_before(
        &self,
        maps: &mut impl SeriesMaps,
        end: u32,
    ) -> Result<Vec<(Key, u32)>> {
        let before = self.series.iter().filter(|(_, tracked)| tracked.slot < end);
        before.map(|(&key, tracked)| Ok((key, maps.read(tracked.slot)?.sum.series.requeues))).collect()
    }

    /// The counters of the series in the slots from this one on.
    pub(in crate::collector) fn readings_beyond(
        &self,
        maps: &mut impl SeriesMaps,
        first: u32,
    ) -> Result<Vec<(Key, SlotReading)>> {
        let beyond = self.series.iter().filter(|(_, tracked)| tracked.slot >= first);
        let (keys, slots): (Vec<_>, Vec<_>) = beyond.map(|(&key, tracked)| (key, tracked.slot)).unzip();
        Ok(keys.into_iter().zip(maps.read_all(&slots)?).collect())
    }

    /// Adds what the probe has counted until the end: by these readings, and of all other series as far as the reference has it,
    /// but for the requeues, which it does not have.
    pub(in crate::collector) fn read_last(
        &mut self,
        maps: &mut impl SeriesMaps,
        index: &[(Key, u32)],
        mut readings: Vec<(Key, SlotReading)>,
        requeues: &[(Key, u32)],
        reference: &mut Reference,
    ) -> Result<()> {
        for &(key, slot) in index {
            let of_workloads = reference.take(key, slot);
            let read = readings.iter().position(|(read, _)| *read == key);
            let reading = match (read, &of_workloads) {
                (Some(place), _) => readings.swap_remove(place).1,
                (None, Some(_)) => {
                    let mut reading = maps.read(slot)?;
                    if let Some((_, requeues)) = requeues.iter().find(|(read, _)| *read == key) {
                        reading.sum.series.requeues = *requeues;
                    }
                    reading
                }
                // It has begun since, and the new probe counts it.
                (None, None) => continue,
            };
            self.track(key, slot).totals.add_last(reading, of_workloads.as_ref());
        }
        Ok(())
    }

    /// Continues with the maps of another probe, in which every slot was zero.
    pub(in crate::collector) fn move_to(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        let index = maps.index()?;
        let is_missing = |key: &Key| !index.iter().any(|(found, _)| found == key);
        self.create_in(maps, &self.keys().filter(is_missing).collect::<Vec<_>>())?;
        let index = maps.index()?;
        for (key, tracked) in &mut self.series {
            tracked.slot = index.iter().find(|(found, _)| found == key).context("a series has no slot")?.1;
            tracked.in_table = false;
            tracked.totals.restart();
        }
        self.quarantined.clear();
        self.uncommitted.clear();
        self.released.clear();
        self.baselines.clear();
        Ok(())
    }
}
