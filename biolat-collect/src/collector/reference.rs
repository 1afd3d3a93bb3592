//! The combined I/O of all workloads on each device. The device figures are limited to this I/O, so the two always agree. The
//! workload tables are read at rest and contain only complete I/Os. The device counters are read later and include some newer
//! ones.

use std::collections::BTreeMap;

use biolat_common::{series::Key, workload::Entry};
use biolat_probe::{EpochCounts, Probe, WorkloadMaps};

use super::{state::record::UsageRecord, workload_totals::WorkloadTotals};

/// Sums over all workloads that have not been added to the series yet.
#[derive(Default)]
pub(super) struct Reference {
    sums: BTreeMap<Key, Entry>,
    /// Number of slots that are counted by workload.
    slots: u32,
}

impl Reference {
    /// Creates a reference for this probe.
    pub(super) fn of(probe: &Probe) -> Self {
        let slots = probe.workloads.as_ref().map_or(0, WorkloadMaps::slots);
        Self { slots, ..Self::default() }
    }

    /// Returns the sums that the series do not include yet, for the next daemon.
    pub(super) fn records(&self) -> Vec<UsageRecord> {
        let record = |(&key, entry): (&Key, &Entry)| {
            let mut totals = WorkloadTotals::default();
            totals.add(entry);
            totals.to_record(key)
        };
        self.sums.iter().map(record).collect()
    }

    /// Adds sums that the previous daemon's series did not include.
    pub(super) fn continue_from(&mut self, records: &[UsageRecord]) -> Option<()> {
        for record in records {
            self.sums.insert(Key::from_bits(record.key), WorkloadTotals::from_record(record)?.to_entry());
        }
        Some(())
    }

    pub(super) fn add(&mut self, counts: &EpochCounts) {
        for (&(key, _), entry) in counts {
            self.sums.entry(key).or_insert(Entry::ZERO).merge(entry);
        }
    }

    /// Takes the sum of a series in this slot. `None` if it is not counted by workload.
    pub(super) fn take(&mut self, key: Key, slot: u32) -> Option<Entry> {
        (slot < self.slots).then(|| self.sums.remove(&key).unwrap_or(Entry::ZERO))
    }

    /// Drops the sums that have not been taken, because their series have ended.
    pub(super) fn clear(&mut self) {
        self.sums.clear();
    }
}
