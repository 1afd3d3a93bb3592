//! The 64-bit totals of one series. The probe's counters are 32 bits wide and wrap; each collection adds their growth.
//!
//! A cell is summed over all CPUs modulo 2^32, so that a bucket may grow by up to 4.2 billion between two collections: at the
//! longest interval, 14 million I/Os per second of one device and op, all in one bucket.

use biolat_common::{
    bucket::CELLS,
    series::{PHASES, Phase, Series},
    status::{self, STATUSES},
};

use crate::{histogram::Histogram, snapshot::SeriesView};

/// Counts of one series since it began.
pub struct Totals {
    last: Series,
    queue_ns: u128,
    device_ns: u128,
    unsplit_ns: u128,
    bytes: u64,
    admission_ns: u128,
    errors: [u64; STATUSES],
    requeues: u64,
    cells: [[u64; PHASES]; CELLS],
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
    /// Bytes moved. Flushes move none, and have no bio that was submitted.
    pub bytes: u64,
}

impl std::ops::AddAssign for Growth {
    fn add_assign(&mut self, other: Self) {
        self.total += other.total;
        self.split += other.split;
        self.admitted += other.admitted;
        self.bytes += other.bytes;
    }
}

/// The patterns name every field and have no `..`: a new field of [`Series`] does not compile until it is widened here,
/// and a new field of [`Totals`] not until it is exposed.
#[deny(unused_variables)]
impl Totals {
    /// Of a new series, in a slot that holds `baseline` from a former one.
    #[must_use]
    pub fn from_baseline(baseline: Series) -> Self {
        Self {
            last: baseline,
            queue_ns: 0,
            device_ns: 0,
            unsplit_ns: 0,
            bytes: 0,
            admission_ns: 0,
            errors: [0; STATUSES],
            requeues: 0,
            cells: [[0; PHASES]; CELLS],
        }
    }

    /// Adds the growth since the last collection.
    pub fn add(&mut self, now: &Series) -> Growth {
        let Series { queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } =
            now.since(&self.last);
        self.last = *now;
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

    #[must_use]
    pub fn count(&self) -> u64 {
        self.cells.iter().map(|cell| cell[Phase::Total as usize]).sum()
    }

    /// The series as the snapshot exposes it.
    #[must_use]
    pub fn view(&self, op: String, statuses_since_6_10: bool) -> SeriesView {
        let Self { last: _, queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } =
            self;
        let mut by_name: Vec<(&'static str, u64)> = Vec::new();
        for (status, &count) in errors.iter().enumerate().filter(|&(_, &count)| count > 0) {
            let name = status::name(status, statuses_since_6_10);
            match by_name.iter_mut().find(|(found, _)| *found == name) {
                Some((_, sum)) => *sum += count,
                None => by_name.push((name, count)),
            }
        }
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
            op,
            bytes: *bytes,
            histograms: Phase::ALL.map(histogram),
            errors: by_name,
            requeues: *requeues,
        }
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::series::{Phase, Series};

    use super::{Growth, Totals};

    #[test]
    fn counters_that_wrap_are_widened() {
        let mut series = Series::ZERO;
        series.cells[100] = [u32::MAX - 1; 4];
        series.queue_ns = u64::MAX - 9;
        let mut totals = Totals::from_baseline(series);
        assert_eq!(totals.count(), 0);

        series.cells[100] = [0, 2, 2, 3];
        series.queue_ns = 90;
        series.unsplit_ns = 5;
        series.bytes = 4096;
        series.errors[10] = 1;
        assert_eq!(totals.add(&series), Growth { total: 5, split: 4, admitted: 2, bytes: 4096 });
        assert_eq!(totals.add(&series), Growth::default());

        let view = totals.view("read".into(), true);
        assert_eq!(view.histograms.each_ref().map(|histogram| histogram.count()), [2, 4, 4, 5]);
        assert_eq!(view.histograms[Phase::Queue as usize].sum_ns, 100);
        assert_eq!(view.histograms[Phase::Total as usize].sum_ns, 105);
        assert_eq!(view.errors, [("ioerr", 1)]);
    }
}
