//! The waits for a tag of one device. The probe's counts of a device only grow, so the state for the next daemon needs only those
//! of probes that have been replaced.

use biolat_common::tags::{self, POOLS, Pool};
use biolat_model::snapshot::{PoolWaits, TagWaits};

use super::state::numbers::array;

/// Waits by pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TagWaitCounts {
    /// Counts of probes that have been replaced.
    earlier: [u64; POOLS],
    /// Counts of the current probe.
    counted: tags::TagWaits,
}

impl TagWaitCounts {
    pub(super) fn set(&mut self, counted: tags::TagWaits) {
        self.counted = counted;
    }

    /// Continues with another probe, which starts at zero.
    pub(super) fn restart(&mut self) {
        self.earlier = self.sum();
        self.counted.waits = [0; POOLS];
    }

    pub(super) fn view(&self) -> TagWaits {
        let sum = self.sum();
        let of = |pool: Pool| PoolWaits { waits: sum[pool as usize], tags: self.counted.tags[pool as usize] };
        TagWaits { driver: of(Pool::Driver), scheduler: of(Pool::Scheduler), reserved: of(Pool::Reserved) }
    }

    /// Returns the record for the next daemon.
    pub(super) fn to_record(self) -> Vec<u64> {
        self.earlier.to_vec()
    }

    /// Restores the counts. A daemon that counted no waits left none.
    pub(super) fn from_record(record: &[u64]) -> Self {
        Self { earlier: array(record).unwrap_or_default(), ..Self::default() }
    }

    fn sum(&self) -> [u64; POOLS] {
        std::array::from_fn(|pool| self.earlier[pool] + self.counted.waits[pool])
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::tags;

    use super::TagWaitCounts;

    fn waits(counts: &TagWaitCounts) -> [(u64, u64); 3] {
        counts.view().pools().map(|(_, pool)| (pool.waits, pool.tags))
    }

    #[test]
    fn continues_after_restarts_and_other_probes() {
        let counted = |waits| tags::TagWaits { waits, tags: [64, 128, 0] };
        let mut counts = TagWaitCounts::default();
        counts.set(counted([5, 6, 7]));
        assert_eq!(waits(&counts), [(5, 64), (6, 128), (7, 0)]);
        // The next daemon reads the same probe.
        counts = TagWaitCounts::from_record(&counts.to_record());
        counts.set(counted([8, 6, 7]));
        assert_eq!(waits(&counts), [(8, 64), (6, 128), (7, 0)]);
        counts.restart();
        assert_eq!(waits(&counts), [(8, 64), (6, 128), (7, 0)]);
        counts = TagWaitCounts::from_record(&counts.to_record());
        counts.set(counted([1, 0, 0]));
        assert_eq!(waits(&counts), [(9, 64), (6, 128), (7, 0)]);
        assert_eq!(waits(&TagWaitCounts::from_record(&[])), [(0, 0); 3]);
    }
}
