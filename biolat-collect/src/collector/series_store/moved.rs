//! The store when the probe is replaced.

use anyhow::{Result, ensure};
use biolat_probe::SeriesMaps;

use super::SeriesStore;

impl SeriesStore {
    /// Continues its series in the maps of a probe that is not attached yet. The counters of the last one are not read any more.
    pub(in crate::collector) fn move_to(&mut self, maps: &mut impl SeriesMaps) -> Result<()> {
        let mut moved = Self::default();
        for (key, mut tracked) in std::mem::take(&mut self.series) {
            while !moved.create(maps, key)? {
                ensure!(moved.grow(maps)?, "there are too many series");
                moved.release_committed(maps)?;
            }
            tracked.totals.restart();
            if let Some(created) = moved.series.get_mut(&key) {
                created.totals = tracked.totals;
            }
        }
        *self = moved;
        Ok(())
    }
}
