//! The 64-bit totals of one workload on one device.

use biolat_common::{series::Key, size::BAND_CELLS, workload::Entry};
use biolat_model::{band_histogram::BandHistogram, snapshot::WorkloadUsage};

use super::state::{
    record::UsageRecord,
    sparse::{compress, compress_wide, expanded, expanded_wide},
};

/// I/O of a workload on one device with one op.
pub(super) struct WorkloadTotals {
    pub(super) queue_ns: u128,
    pub(super) device_ns: u128,
    pub(super) unsplit_ns: u128,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) cells: [u64; BAND_CELLS],
}

impl Default for WorkloadTotals {
    fn default() -> Self {
        Self { queue_ns: 0, device_ns: 0, unsplit_ns: 0, bytes: 0, errors: 0, cells: [0; BAND_CELLS] }
    }
}

/// The patterns name every field without `..`, so adding a field breaks the build until the field is added and exposed.
#[deny(unused_variables)]
impl WorkloadTotals {
    pub(super) fn add(&mut self, entry: &Entry) {
        let Entry { workload: _, series: _, epoch: _, queue_ns, device_ns, unsplit_ns, bytes, errors, cells } =
            entry;
        self.queue_ns += u128::from(*queue_ns);
        self.device_ns += u128::from(*device_ns);
        self.unsplit_ns += u128::from(*unsplit_ns);
        self.bytes += bytes;
        self.errors += errors;
        for (sum, count) in self.cells.iter_mut().zip(cells) {
            *sum += u64::from(*count);
        }
    }

    pub(super) fn add_totals(&mut self, other: &Self) {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = other;
        self.queue_ns += queue_ns;
        self.device_ns += device_ns;
        self.unsplit_ns += unsplit_ns;
        self.bytes += bytes;
        self.errors += errors;
        for (sum, count) in self.cells.iter_mut().zip(cells) {
            *sum += count;
        }
    }

    /// Returns the record of the totals for the next daemon.
    pub(super) fn to_record(&self, key: Key) -> UsageRecord {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = self;
        UsageRecord {
            key: key.bits(),
            times: compress_wide(&[*queue_ns, *device_ns, *unsplit_ns]),
            bytes: *bytes,
            errors: *errors,
            cells: compress(cells),
        }
    }

    /// Restores totals; `None` if the record is invalid.
    pub(super) fn from_record(record: &UsageRecord) -> Option<Self> {
        let [queue_ns, device_ns, unsplit_ns] = expanded_wide(&record.times)?;
        let (bytes, errors, cells) = (record.bytes, record.errors, expanded(&record.cells)?);
        Some(Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells })
    }

    /// Narrows the totals to the probe's format for one epoch.
    pub(super) fn to_entry(&self) -> Entry {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = self;
        Entry {
            queue_ns: *queue_ns as u64,
            device_ns: *device_ns as u64,
            unsplit_ns: *unsplit_ns as u64,
            bytes: *bytes,
            errors: *errors,
            cells: cells.map(|count| count as u32),
            ..Entry::ZERO
        }
    }

    /// Returns the number of I/Os.
    pub(super) fn ios(&self) -> u64 {
        self.cells.iter().sum()
    }

    pub(super) fn view(&self, device: &str, op: String) -> WorkloadUsage {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = self;
        WorkloadUsage {
            device: device.to_owned(),
            op,
            bytes: *bytes,
            errors: *errors,
            queue_ns: *queue_ns,
            device_ns: *device_ns,
            latency: BandHistogram::from_cells(cells, queue_ns + device_ns + unsplit_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::{series::Key, workload::Entry};

    use super::{UsageRecord, WorkloadTotals};

    #[test]
    fn record_round_trips() {
        let mut entry =
            Entry { queue_ns: 1, device_ns: 2, unsplit_ns: 3, bytes: 4, errors: 5, ..Entry::ZERO };
        entry.cells[30] = 6;
        let mut totals = WorkloadTotals::default();
        totals.add(&entry);
        assert_eq!(totals.to_entry(), entry);
        totals.queue_ns += 1 << 70;
        let record = totals.to_record(Key::new(7, 1));
        let kept = WorkloadTotals::from_record(&record).unwrap();
        assert_eq!((kept.to_record(Key::new(7, 1)), kept.queue_ns), (record.clone(), totals.queue_ns));
        assert!(WorkloadTotals::from_record(&UsageRecord { cells: vec![200, 1], ..record }).is_none());
    }
}
