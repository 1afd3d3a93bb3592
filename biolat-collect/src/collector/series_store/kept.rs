//! Keeps the store for the next daemon, and restores a kept one. The state records how things stood when it was written; the
//! kernel's maps show what has happened since.

use anyhow::{Context as _, Result, ensure};
use biolat_common::series::Key;
use biolat_probe::SeriesMaps;

use super::{
    super::{
        state::record::{BaselineRecord, State, field},
        totals::{
            Totals,
            record::{from_record, to_record},
        },
    },
    Baseline, SeriesStore, TrackedSeries,
};

/// A series that has ended since the state was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::collector) struct EndedSeries {
    pub(in crate::collector) key: Key,
    pub(in crate::collector) completions: u64,
}

impl SeriesStore {
    /// Appends the series, and the baselines of the other slots, to the state.
    pub(in crate::collector) fn append_records(&mut self, state: &mut Vec<u8>) {
        for (&key, TrackedSeries { slot, totals, .. }) in &mut self.series {
            totals.append_record(key, *slot, state);
        }
        for (&slot, Baseline { reading, encoded }) in &mut self.baselines {
            let record = || BaselineRecord { slot, reading: to_record(reading) };
            encoded.append(field::BASELINES, record, state);
        }
    }

    /// Returns the slots that cannot be in the free queue. The next daemon has to find out for itself whether a released slot is
    /// in the queue.
    pub(in crate::collector) fn quarantined_slots(&self) -> Vec<u32> {
        self.quarantined.iter().map(|quarantined| quarantined.slot).collect()
    }

    /// Continues with maps that have this many slots. Returns the series that have ended since the state was written.
    pub(in crate::collector) fn continue_from(
        maps: &mut impl SeriesMaps,
        all_slots: u32,
        state: &State,
    ) -> Result<(Self, Vec<EndedSeries>)> {
        const CONTEXT: &str = "the state contains an invalid series";
        let State { series, baselines, quarantined, .. } = state;
        let of_series = series.iter().map(|record| record.slot);
        let of_free = baselines.iter().map(|baseline| baseline.slot);
        let mut known = of_series.chain(of_free).chain(quarantined.iter().copied());
        ensure!(known.all(|slot| slot < all_slots), "a map is missing that contains slots of the state");
        let (mut store, mut ended) = (Self::default(), Vec::new());
        for BaselineRecord { slot, reading } in baselines {
            store.baselines.insert(*slot, Baseline::new(from_record(reading).context(CONTEXT)?));
        }
        let index = maps.index()?;
        ensure!(
            index.iter().all(|&(_, slot)| slot < all_slots),
            "a map is missing that contains slots of the series"
        );
        let mut taken = Slots::none_of(all_slots);
        for &(_, slot) in &index {
            taken.insert(slot);
        }
        for record in series {
            let (key, slot) = (Key::from_bits(record.key), record.slot);
            let totals = Box::new(Totals::from_record(record).context(CONTEXT)?);
            if index.contains(&(key, slot)) {
                store.series.insert(key, TrackedSeries { slot, in_table: false, totals });
            } else {
                // Only the daemon ends a series, and it writes the state before it releases the slot.
                ended.push(EndedSeries { key, completions: totals.count() });
                if taken.insert(slot) {
                    store.quarantine(maps, slot);
                }
            }
        }
        // Series that began after the state was written.
        for &(key, slot) in &index {
            store.track(key, slot);
        }
        for &slot in quarantined.iter().filter(|&&slot| taken.insert(slot)) {
            store.quarantine(maps, slot);
        }
        for slot in store.orphaned_slots(maps, all_slots)? {
            store.quarantine(maps, slot);
        }
        Ok((store, ended))
    }

    /// Returns the slots that are neither free, in use nor quarantined, because the daemon ended just before it pushed or
    /// inserted them.
    fn orphaned_slots(&self, maps: &mut impl SeriesMaps, all_slots: u32) -> Result<Vec<u32>> {
        let mut used = Slots::none_of(all_slots);
        for quarantined in &self.quarantined {
            used.insert(quarantined.slot);
        }
        let add_used = |used: &mut Slots, maps: &mut _| -> Result<()> {
            for (_, slot) in SeriesMaps::index(maps)? {
                used.insert(slot);
            }
            Ok(())
        };
        add_free(&mut used, maps)?;
        add_used(&mut used, maps)?;
        if used.others().next().is_some() {
            // A run of the probe may have popped such a slot. Once the run has ended, the slot is in use or back at the end of
            // the queue. It is found there unless, in the meantime, more series begin than there are free slots ahead of it. In
            // that case it ends up in the index, and `end_quarantine` does not release it.
            maps.wait_for_runs();
            add_free(&mut used, maps)?;
            add_used(&mut used, maps)?;
        }
        Ok(used.others().collect())
    }
}

/// Adds the slots in the free queue. They are popped and pushed back one at a time, so the probe always finds one.
fn add_free(used: &mut Slots, maps: &mut impl SeriesMaps) -> Result<()> {
    let mut found = Slots::none_of(used.0.len() as u32);
    for _ in 0..used.0.len() {
        let Some(slot) = maps.pop_free()? else { break };
        maps.push_free(slot)?;
        used.insert(slot);
        if !found.insert(slot) {
            break;
        }
    }
    Ok(())
}

/// A set of slots.
struct Slots(Vec<bool>);

impl Slots {
    fn none_of(all: u32) -> Self {
        Self(vec![false; all as usize])
    }

    /// Returns `false` if the slot was already in the set or does not exist.
    fn insert(&mut self, slot: u32) -> bool {
        self.0.get_mut(slot as usize).is_some_and(|is_in| !std::mem::replace(is_in, true))
    }

    /// Returns the slots that are not in the set.
    fn others(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.0).filter(|(_, is_in)| !**is_in).map(|(slot, _)| slot)
    }
}
