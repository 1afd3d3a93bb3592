//! The store when the probe is replaced.

use anyhow::{Result, ensure};
use biolat_probe::SeriesMaps;

use super::{SeriesStore, TrackedSeries};

impl SeriesStore {
    /// Continues its series in the maps of another probe, in which every slot was zero at first. That probe may have created some.
    pub(in crate::collector) fn move_to(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        let mut moved = Self::default();
        for &key in self.series.keys() {
            while !moved.create(maps, key)? {
                ensure!(moved.grow(maps)?, "there are too many series");
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
