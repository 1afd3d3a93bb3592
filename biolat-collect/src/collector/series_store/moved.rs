//! Moves the store to another probe.

use anyhow::{Result, ensure};
use biolat_probe::SeriesMaps;

use super::{SeriesStore, TrackedSeries};

impl SeriesStore {
    /// Continues the series in the maps of another probe, in which every slot started at zero. That probe may already have
    /// created some of them.
    pub(in crate::collector) fn move_to(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        let mut moved = Self::default();
        for &key in self.series.keys() {
            while !moved.create(maps, key)? {
                ensure!(moved.grow(maps)?, "too many series");
                moved.release_committed(maps)?;
            }
        }
        for (key, slot) in maps.index()? {
            let created = moved.track(key, slot);
            if let Some(TrackedSeries { mut totals, .. }) = self.series.remove(&key) {
                totals.restart();
                created.totals = totals;
            }
        }
        *self = moved;
        Ok(())
    }
}
