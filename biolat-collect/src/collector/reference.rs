//! What all workloads together have done on each device: the reference of what is shown of the devices, so that both always
//! agree. The tables of workloads are read at rest, and hold complete I/Os; the counters of the devices are read later, and hold
//! some more.

use std::collections::BTreeMap;

use biolat_common::{series::Key, workload::Entry};
use biolat_probe::{EpochCounts, Probe, WorkloadMaps};

use super::{state::record::UsageRecord, workload_totals::WorkloadTotals};

/// The sums over all workloads, as far as the series do not have them yet.
#[derive(Default)]
pub(super) struct Reference {
    sums: BTreeMap<Key, Entry>,
    /// How many slots are counted by workload.
    slots: u32,
}

impl Reference {
    /// For this probe.
    pub(super) fn of(probe: &Probe) -> Self {
        let slots = probe.workloads.as_ref().map_or(0, WorkloadMaps::slots);
        Self { slots, ..Self::default() }
    }

    /// What the series do not have yet, for the next daemon.
    pub(super) fn records(&self) -> Vec<UsageRecord> {
        let record = |(&key, entry): (&Key, &Entry)| {
            let mut totals = WorkloadTotals::default();
            totals.add(entry);
            totals.to_record(key)
        };
        self.sums.iter().map(record).collect()
    }

    /// Adds what the series of the last daemon did not have.
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

    /// Forgets the sums of series that have ended: all that have not been taken.
    pub(super) fn clear(&mut self) {
        self.sums.clear();
    }
}
