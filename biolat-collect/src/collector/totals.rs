//! The 64-bit totals of one series. The probe's counters are 32 bits wide and wrap; each collection adds their growth.
//!
//! A cell is summed over all CPUs modulo 2^32, so a bucket can grow by up to 4.2 billion between two collections. At the longest
//! interval, that is 14 million I/Os per second for one device and op, all in one bucket.

pub(super) mod record;

use std::collections::BTreeMap;

use biolat_common::{
    bucket::CELLS,
    series::{PHASES, Phase, Series},
    size::{self, BAND_CELLS, BANDS, Counters, Sizes},
    status::{self, STATUSES},
    workload::Entry,
};
use biolat_model::{
    band_histogram::BandHistogram,
    histogram::Histogram,
    name::Name,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SeriesView, SizesView},
};
use biolat_probe::SlotReading;

use super::{
    incomplete::{Kind, amount, exclude_incomplete, limit_to},
    state::{encoded::Encoded, record::ReadingRecord},
    workload_totals::WorkloadTotals,
};

/// `REQ_OP_READ` and `REQ_OP_WRITE`.
const READ: u32 = 0;
const WRITE: u32 = 1;

/// Counts of one series since it began.
pub struct Totals {
    is_read_or_write: bool,
    /// The counters, as far as they have been added to the totals.
    last: SlotReading,
    /// Lead of `last` over the totals, which never changes except for bytes and times; `None` if they are equal.
    ahead: Option<Box<ReadingRecord>>,
    /// The part of the latest reading that was left out (see [`amount`]).
    left_out: u64,
    /// Whether the latest growth was exactly what the previous reading had left out.
    is_unchanged: bool,
    queue_ns: u128,
    device_ns: u128,
    unsplit_ns: u128,
    bytes: u64,
    admission_ns: u128,
    errors: [u64; STATUSES],
    requeues: u64,
    cells: [[u64; PHASES]; CELLS],
    sizes: SizeTotals,
    /// Requests that ended on each CPU.
    completions: Vec<u64>,
    /// The encoded totals, for the next daemon.
    encoded: Encoded,
}

/// Counts by size.
struct SizeTotals {
    band_ns: [u128; BANDS],
    requests: [u64; size::CELLS],
    bands: [[u64; BAND_CELLS]; BANDS],
    undispatched: u64,
}

/// Growth of a series between two collections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Growth {
    /// All requests.
    pub total: u64,
    /// Requests with a known dispatch time, whose latency is split into queue and device.
    pub split: u64,
    /// Requests with a known submission time.
    pub admitted: u64,
    /// Bytes transferred. Flushes are not included, because they transfer none and have no submitted bio.
    pub bytes: u64,
    /// Requests of series that are not counted by workload.
    pub without_workload: u64,
}

impl std::ops::AddAssign for Growth {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.split += other.split;
        self.admitted += other.admitted;
        self.bytes += other.bytes;
        self.without_workload += other.without_workload;
    }
}

/// The patterns name every field without `..`, so adding a field to [`Series`] breaks the build until it is added here, and
/// adding one to [`Totals`] breaks it until the field is exposed.
#[deny(unused_variables)]
impl Totals {
    /// Creates totals for a new series with this op, in a slot that contains `baseline` from a previous one.
    #[must_use]
    pub fn from_baseline(op: u32, baseline: SlotReading) -> Self {
        Self {
            is_read_or_write: matches!(op, READ | WRITE),
            ahead: record::difference(&baseline),
            last: baseline,
            left_out: 0,
            is_unchanged: false,
            queue_ns: 0,
            device_ns: 0,
            unsplit_ns: 0,
            bytes: 0,
            admission_ns: 0,
            errors: [0; STATUSES],
            requeues: 0,
            cells: [[0; PHASES]; CELLS],
            sizes: SizeTotals::ZERO,
            completions: Vec::new(),
            encoded: Encoded::default(),
        }
    }

    /// Continues in a slot of another probe, which started at zero.
    pub(super) fn restart(&mut self) {
        self.last = SlotReading::ZERO;
        self.ahead = record::difference(&self.without_totals(&self.last));
        self.left_out = 0;
        self.is_unchanged = false;
        self.encoded.forget();
    }

    /// Adds the growth since the last collection. With a `reference` (the I/O of all workloads), the growth is limited to its
    /// I/Os.
    pub fn add(&mut self, now: SlotReading, reference: Option<&Entry>) -> Growth {
        let before = (self.left_out, self.is_unchanged, self.completions.len());
        let mut growth = now.sum.since(&self.last.sum);
        self.completions.resize(now.completions.len(), 0);
        self.last.completions.resize(now.completions.len(), 0);
        let last = &mut self.last;
        let of_cpus = now.completions.iter().zip(&last.completions);
        let mut completions: Vec<u32> = of_cpus.map(|(now, last)| now.wrapping_sub(*last)).collect();
        let seen = amount(&growth);
        // After three equal readings, no I/O is incomplete. Two are not enough, because a run of the probe can be paused in the
        // middle, for example when the hypervisor preempts a virtual CPU.
        let was_unchanged = std::mem::replace(&mut self.is_unchanged, seen == self.left_out);
        let kind = Kind {
            has_sizes: now.has_sizes,
            is_read_or_write: self.is_read_or_write,
            has_undispatched: self.sizes.undispatched > 0,
        };
        match reference {
            Some(reference) => limit_to(reference, &mut growth, &mut completions, kind),
            None if was_unchanged && self.is_unchanged => {}
            None => exclude_incomplete(&mut growth, &mut completions, kind),
        }
        self.left_out = seen.wrapping_sub(amount(&growth));
        last.sum.merge(&growth);
        for ((total, last), new) in self.completions.iter_mut().zip(&mut last.completions).zip(completions) {
            *total += u64::from(new);
            *last = last.wrapping_add(new);
        }
        // The series' counters do not include what the probe counts by workload.
        let by_workload = reference.unwrap_or(&Entry::ZERO);
        // These counters are not included in the amount.
        let Series { bytes, requeues, errors, .. } = &growth.series;
        if seen != 0
            || *bytes != 0
            || *requeues != 0
            || errors.iter().any(|&count| count != 0)
            || growth.sizes.undispatched != 0
            || *by_workload != Entry::ZERO
            || (self.left_out, self.is_unchanged, self.completions.len()) != before
        {
            self.encoded.forget();
        }
        let Counters { series, sizes } = growth;
        let Series { queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } = series;
        let bytes = bytes + by_workload.bytes;
        self.sizes.add(&sizes);
        self.queue_ns += u128::from(by_workload.queue_ns);
        self.device_ns += u128::from(by_workload.device_ns);
        self.unsplit_ns += u128::from(by_workload.unsplit_ns);
        self.queue_ns += u128::from(queue_ns);
        self.device_ns += u128::from(device_ns);
        self.unsplit_ns += u128::from(unsplit_ns);
        self.bytes += bytes;
        self.admission_ns += u128::from(admission_ns);
        self.requeues += u64::from(requeues);
        for (total, new) in self.errors.iter_mut().zip(errors) {
            *total += u64::from(new);
        }
        let mut growth = Growth { bytes, ..Growth::default() };
        for (total, new) in self.cells.iter_mut().zip(cells) {
            for (total, new) in total.iter_mut().zip(new) {
                *total += u64::from(new);
            }
            growth.total += u64::from(new[Phase::Total as usize]);
            growth.split += u64::from(new[Phase::Device as usize]);
            growth.admitted += u64::from(new[Phase::Admission as usize]);
        }
        growth
    }

    /// Returns the I/O of all workloads together.
    pub(super) fn of_all_workloads(&self) -> WorkloadTotals {
        let total = |cells: &[[u64; PHASES]]| cells.iter().map(|cell| cell[Phase::Total as usize]).sum();
        let mut groups = self.cells.chunks(CELLS / BAND_CELLS);
        WorkloadTotals {
            queue_ns: self.queue_ns,
            device_ns: self.device_ns,
            unsplit_ns: self.unsplit_ns,
            bytes: self.bytes,
            errors: self.errors.iter().sum(),
            cells: std::array::from_fn(|_| groups.next().map_or(0, total)),
        }
    }

    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().map(|cell| cell[Phase::Total as usize]).sum()
    }

    /// Returns how many requests ended on each CPU.
    #[must_use]
    pub fn completions(&self) -> &[u64] {
        &self.completions
    }

    /// Returns the series as the snapshot exposes it, with or without counts by size.
    #[must_use]
    pub fn view(&self, op: String, statuses_since_6_10: bool, has_sizes: bool) -> SeriesView {
        let Self {
            is_read_or_write: _,
            last: _,
            ahead: _,
            left_out: _,
            is_unchanged: _,
            queue_ns,
            device_ns,
            unsplit_ns,
            bytes,
            admission_ns,
            errors,
            requeues,
            cells,
            sizes,
            completions: _,
            encoded: _,
        } = self;
        let histogram = |phase| {
            let sum_ns = match phase {
                Phase::Admission => *admission_ns,
                Phase::Queue => *queue_ns,
                Phase::Device => *device_ns,
                Phase::Total => queue_ns + device_ns + unsplit_ns,
            };
            Histogram::from_cells(cells.iter().map(|cell| cell[phase as usize]), sum_ns)
        };
        SeriesView {
            sizes: has_sizes.then(|| sizes.view(has_bands(&op))),
            op,
            bytes: *bytes,
            histograms: Phase::ALL.map(histogram),
            errors: errors_by_name(errors, statuses_since_6_10),
            requeues: *requeues,
            ended_workload_ios: 0,
        }
    }
}

/// Whether the latencies of an op are exposed by size: only for ops that move data. A discard has a size, but its latency hardly
/// depends on it.
fn has_bands(op: &str) -> bool {
    matches!(op, "read" | "write" | "zone_append")
}

#[deny(unused_variables)]
impl SizeTotals {
    const ZERO: Self = Self {
        band_ns: [0; BANDS],
        requests: [0; size::CELLS],
        bands: [[0; BAND_CELLS]; BANDS],
        undispatched: 0,
    };

    fn add(&mut self, growth: &Sizes) {
        let Sizes { band_ns, requests, bands, undispatched } = growth;
        self.undispatched += undispatched;
        for (total, new) in self.band_ns.iter_mut().zip(band_ns) {
            *total += u128::from(*new);
        }
        for (total, new) in self.requests.iter_mut().zip(requests) {
            *total += u64::from(*new);
        }
        for (total, new) in self.bands.as_flattened_mut().iter_mut().zip(bands.as_flattened()) {
            *total += u64::from(*new);
        }
    }

    fn view(&self, has_bands: bool) -> SizesView {
        let Self { band_ns, requests, bands, undispatched: _ } = self;
        let histograms = bands.iter().zip(band_ns);
        let histograms = histograms.map(|(cells, ns)| BandHistogram::from_cells(cells, *ns));
        let bands = size::BAND_NAMES.into_iter().zip(histograms);
        SizesView {
            requests: SizeHistogram::from_cells(requests),
            // While I/Os complete, a band can include some of the time of an I/O that is not counted until the next collection.
            bands: bands
                .filter(|(_, histogram)| has_bands && !histogram.is_empty())
                .map(|(size, device)| BandView { size: size.into(), device })
                .collect(),
        }
    }
}

/// Returns the errors by the name of their status, without zeros.
pub(super) fn errors_by_name(errors: &[u64; STATUSES], statuses_since_6_10: bool) -> BTreeMap<Name, u64> {
    let mut by_name = BTreeMap::new();
    for (status, &count) in errors.iter().enumerate().filter(|&(_, &count)| count > 0) {
        *by_name.entry(status::name(status, statuses_since_6_10).into()).or_default() += count;
    }
    by_name
}

#[cfg(test)]
mod tests {
    use biolat_common::{
        series::Phase,
        size::{Counters, Sizes},
    };
    use biolat_model::snapshot::BandView;
    use biolat_probe::SlotReading;

    use super::{Growth, Totals};

    fn reading(sum: Counters) -> SlotReading {
        SlotReading {
            sum,
            completions: vec![sum.series.cells[100][Phase::Total as usize], 0],
            has_sizes: true,
        }
    }

    #[test]
    fn incomplete_io_waits_for_change_or_for_stability() {
        let mut counters = Counters::ZERO;
        counters.series.cells[100] = [0, 1, 1, 1];
        counters.sizes.requests[4] = 1;
        counters.sizes.bands[0][25] = 1;
        let mut totals = Totals::from_baseline(1, SlotReading::ZERO);
        assert_eq!(totals.add(reading(counters), None).total, 1);
        // An I/O whose size is not counted yet.
        counters.series.cells[100] = [0, 2, 2, 2];
        assert_eq!(totals.add(reading(counters), None).total, 0);
        assert_eq!(totals.completions(), [1, 0]);
        counters.sizes.requests[4] = 2;
        counters.sizes.bands[0][25] = 2;
        assert_eq!(totals.add(reading(counters), None).total, 1);
        assert_eq!(totals.completions(), [2, 0]);
        // After three readings without a change, nothing is incomplete, so an interrupt must have overwritten a count.
        counters.series.cells[100] = [0, 2, 2, 3];
        assert_eq!(totals.add(reading(counters), None).total, 0);
        assert_eq!(totals.add(reading(counters), None).total, 0);
        assert_eq!(totals.add(reading(counters), None).total, 1);
        assert_eq!(totals.add(reading(counters), None).total, 0);
    }

    #[test]
    fn widens_wrapping_counters() {
        let mut counters = Counters::ZERO;
        let series = &mut counters.series;
        series.cells[100] = [u32::MAX - 1; 4];
        series.queue_ns = u64::MAX - 9;
        counters.sizes = Sizes {
            band_ns: [u64::MAX - 9; _],
            requests: [u32::MAX - 1; _],
            bands: [[u32::MAX - 1; _]; _],
            undispatched: 0,
        };
        let mut totals = Totals::from_baseline(0, reading(counters));
        assert_eq!(totals.count(), 0);

        let series = &mut counters.series;
        series.cells[100] = [0, 2, 2, 3];
        series.queue_ns = 90;
        series.unsplit_ns = 5;
        series.bytes = 4096;
        series.errors[10] = 1;
        counters.sizes.requests[5] = 3;
        counters.sizes.bands[1][25] = 3;
        counters.sizes.band_ns[1] = 90;
        counters.sizes.undispatched = 1;
        let growth = Growth { total: 5, split: 4, admitted: 2, bytes: 4096, ..Growth::default() };
        assert_eq!(totals.add(reading(counters), None), growth);
        assert_eq!(totals.add(reading(counters), None), Growth::default());
        assert_eq!(totals.completions(), [5, 0]);

        let view = totals.view("read".into(), true, true);
        assert_eq!(view.histograms.each_ref().map(|histogram| histogram.count()), [2, 4, 4, 5]);
        assert_eq!(view.histograms[Phase::Queue as usize].sum_ns, 100);
        assert_eq!(view.histograms[Phase::Total as usize].sum_ns, 105);
        assert_eq!(view.errors, [("ioerr".into(), 1)].into());
        let sizes = view.sizes.unwrap();
        assert_eq!((sizes.requests.count(), &sizes.requests.buckets[..]), (5, &[(13, 5)][..]));
        let BandView { size, device: latencies } = &sizes.bands[0];
        assert_eq!((&**size, latencies.count(), latencies.mean()), ("le_16KiB", 5, Some(2e-8)));
        assert_eq!(sizes.bands.len(), 1);

        assert!(totals.view("discard".into(), true, true).sizes.unwrap().bands.is_empty());
        assert!(totals.view("read".into(), true, false).sizes.is_none());
    }
}
