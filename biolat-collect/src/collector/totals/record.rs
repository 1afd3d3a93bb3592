//! Keeps totals for the next daemon.

use biolat_common::{
    bucket::CELLS,
    series::{Key, PHASES, Series},
    size::{BAND_CELLS, BANDS, Counters, Sizes},
};
use biolat_probe::{MAX_CPUS, SlotReading};

use super::{
    super::state::{
        record::{CompletionsRecord, ReadingRecord, SeriesRecord, field},
        sparse::{compress, compress_wide, expand, expanded, expanded_wide},
    },
    SizeTotals, Totals,
};

/// The patterns name every field without `..`, so adding a field breaks the build until the field is kept.
#[deny(unused_variables)]
impl Totals {
    /// Returns the record of the series with this key, in this slot.
    fn to_record(&self, key: Key, slot: u32) -> SeriesRecord {
        let Self {
            is_read_or_write: _,
            last,
            ahead,
            left_out,
            is_unchanged,
            queue_ns,
            device_ns,
            unsplit_ns,
            bytes,
            admission_ns,
            errors,
            requeues,
            cells,
            sizes,
            completions,
            encoded: _,
        } = self;
        let SizeTotals { band_ns, requests, bands, undispatched } = sizes;
        SeriesRecord {
            key: key.bits(),
            slot,
            left_out: *left_out,
            is_unchanged: *is_unchanged,
            times: compress_wide(&[*queue_ns, *device_ns, *unsplit_ns, *admission_ns]),
            bytes: *bytes,
            errors: compress(errors),
            requeues: *requeues,
            cells: compress(cells.as_flattened()),
            band_ns: compress_wide(band_ns),
            requests: compress(requests),
            bands: compress(bands.as_flattened()),
            undispatched: *undispatched,
            completions: completions_record(completions),
            ahead: ahead.as_deref().cloned(),
            last_times: compress(&times(&last.sum.series)),
            last_band_ns: compress(&last.sum.sizes.band_ns),
            has_sizes: last.has_sizes,
        }
    }

    /// Appends the record to the state.
    pub(in crate::collector) fn append_record(&mut self, key: Key, slot: u32, state: &mut Vec<u8>) {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.append(field::SERIES, || self.to_record(key, slot), state);
        self.encoded = encoded;
    }

    /// Restores totals; `None` if the record is invalid.
    pub(in crate::collector) fn from_record(record: &SeriesRecord) -> Option<Self> {
        let [queue_ns, device_ns, unsplit_ns, admission_ns] = expanded_wide(&record.times)?;
        let mut totals = Self {
            left_out: record.left_out,
            is_unchanged: record.is_unchanged,
            queue_ns,
            device_ns,
            unsplit_ns,
            bytes: record.bytes,
            admission_ns,
            errors: expanded(&record.errors)?,
            requeues: record.requeues,
            sizes: SizeTotals {
                band_ns: expanded_wide(&record.band_ns)?,
                requests: expanded(&record.requests)?,
                undispatched: record.undispatched,
                ..SizeTotals::ZERO
            },
            completions: completions(&record.completions)?,
            ..Self::from_baseline(Key::from_bits(record.key).op(), SlotReading::ZERO)
        };
        expand(&record.cells, totals.cells.as_flattened_mut())?;
        expand(&record.bands, totals.sizes.bands.as_flattened_mut())?;
        let ahead = record.ahead.as_ref().map_or(Some(SlotReading::ZERO), from_record)?;
        totals.last = totals.with_totals(&ahead);
        let series = &mut totals.last.sum.series;
        [series.queue_ns, series.device_ns, series.unsplit_ns, series.admission_ns, series.bytes] =
            expanded(&record.last_times)?;
        totals.last.sum.sizes.band_ns = expanded(&record.last_band_ns)?;
        totals.last.has_sizes = record.has_sizes;
        totals.ahead = record.ahead.clone().map(Box::new);
        Some(totals)
    }

    /// Returns the lead of a reading over the totals.
    pub(super) fn without_totals(&self, reading: &SlotReading) -> SlotReading {
        let own = self.narrowed();
        SlotReading {
            sum: reading.sum.since(&own.sum),
            completions: combine(&reading.completions, &own.completions, u32::wrapping_sub),
            has_sizes: reading.has_sizes,
        }
    }

    fn with_totals(&self, ahead: &SlotReading) -> SlotReading {
        let mut reading = self.narrowed();
        reading.sum.merge(&ahead.sum);
        reading.completions = combine(&reading.completions, &ahead.completions, u32::wrapping_add);
        reading
    }

    /// Narrows the totals to the width of the counters.
    fn narrowed(&self) -> SlotReading {
        let narrow = |count: u64| count as u32;
        let mut cells = [[0; PHASES]; CELLS];
        for (cell, total) in cells.as_flattened_mut().iter_mut().zip(self.cells.as_flattened()) {
            *cell = narrow(*total);
        }
        let mut bands = [[0; BAND_CELLS]; BANDS];
        for (cell, total) in bands.as_flattened_mut().iter_mut().zip(self.sizes.bands.as_flattened()) {
            *cell = narrow(*total);
        }
        let series = Series {
            queue_ns: self.queue_ns as u64,
            device_ns: self.device_ns as u64,
            unsplit_ns: self.unsplit_ns as u64,
            bytes: self.bytes,
            admission_ns: self.admission_ns as u64,
            errors: self.errors.map(narrow),
            requeues: narrow(self.requeues),
            cells,
        };
        let sizes = Sizes {
            band_ns: self.sizes.band_ns.map(|ns| ns as u64),
            requests: self.sizes.requests.map(narrow),
            bands,
            undispatched: self.sizes.undispatched,
        };
        SlotReading {
            sum: Counters { series, sizes },
            completions: self.completions.iter().map(|&count| narrow(count)).collect(),
            has_sizes: false,
        }
    }
}

fn completions_record<T: Copy + Into<u64>>(counts: &[T]) -> CompletionsRecord {
    CompletionsRecord { cpus: counts.len() as u32, counts: compress(counts) }
}

/// Restores counts; `None` if the record has more CPUs than a kernel supports.
fn completions<T: TryFrom<u64> + Copy + Default>(record: &CompletionsRecord) -> Option<Vec<T>> {
    let mut counts = vec![T::default(); Some(record.cpus as usize).filter(|cpus| *cpus <= MAX_CPUS)?];
    expand(&record.counts, &mut counts)?;
    Some(counts)
}

/// Combines counts elementwise. The result is as long as the longer slice.
fn combine(counts: &[u32], others: &[u32], by: fn(u32, u32) -> u32) -> Vec<u32> {
    let at = |counts: &[u32], place: usize| counts.get(place).copied().unwrap_or_default();
    let places = 0..counts.len().max(others.len());
    places.map(|place| by(at(counts, place), at(others, place))).collect()
}

/// Returns the 64-bit counters.
fn times(series: &Series) -> [u64; 5] {
    [series.queue_ns, series.device_ns, series.unsplit_ns, series.admission_ns, series.bytes]
}

/// Returns a lead as a record; `None` if it is zero.
pub(super) fn difference(ahead: &SlotReading) -> Option<Box<ReadingRecord>> {
    let is_zero = ahead.sum == Counters::ZERO && ahead.completions.iter().all(|&count| count == 0);
    (!is_zero).then(|| Box::new(to_record(ahead)))
}

/// The patterns name every field without `..`, so adding a field breaks the build until the field is kept.
#[deny(unused_variables)]
pub(in crate::collector) fn to_record(reading: &SlotReading) -> ReadingRecord {
    let SlotReading { sum, completions, has_sizes } = reading;
    let Counters { series, sizes } = sum;
    let Series { queue_ns, device_ns, unsplit_ns, bytes, admission_ns, errors, requeues, cells } = series;
    let Sizes { band_ns, requests, bands, undispatched } = sizes;
    ReadingRecord {
        times: compress(&[*queue_ns, *device_ns, *unsplit_ns, *admission_ns]),
        bytes: *bytes,
        errors: compress(errors),
        requeues: *requeues,
        cells: compress(cells.as_flattened()),
        band_ns: compress(band_ns),
        requests: compress(requests),
        bands: compress(bands.as_flattened()),
        undispatched: *undispatched,
        completions: completions_record(completions),
        has_sizes: *has_sizes,
    }
}

/// Restores a reading; `None` if the record is invalid.
pub(in crate::collector) fn from_record(record: &ReadingRecord) -> Option<SlotReading> {
    let [queue_ns, device_ns, unsplit_ns, admission_ns] = expanded(&record.times)?;
    let mut sum = Counters {
        series: Series {
            queue_ns,
            device_ns,
            unsplit_ns,
            bytes: record.bytes,
            admission_ns,
            errors: expanded(&record.errors)?,
            requeues: record.requeues,
            ..Series::ZERO
        },
        sizes: Sizes {
            band_ns: expanded(&record.band_ns)?,
            requests: expanded(&record.requests)?,
            undispatched: record.undispatched,
            ..Sizes::ZERO
        },
    };
    expand(&record.cells, sum.series.cells.as_flattened_mut())?;
    expand(&record.bands, sum.sizes.bands.as_flattened_mut())?;
    Some(SlotReading { sum, completions: completions(&record.completions)?, has_sizes: record.has_sizes })
}

#[cfg(test)]
mod tests {
    use biolat_common::{
        series::Key,
        size::{Counters, Sizes},
        workload::Entry,
    };
    use biolat_probe::SlotReading;

    use super::{Totals, from_record, to_record};

    /// Returns a reading in which every counter is `scale` times a different number.
    fn reading(scale: u32) -> SlotReading {
        let mut number = 0;
        let mut next = || {
            number += 1;
            scale.wrapping_mul(number)
        };
        let mut sum = Counters::ZERO;
        sum.series.queue_ns = u64::from(next()) << 30;
        sum.series.device_ns = u64::from(next()) << 31;
        sum.series.unsplit_ns = u64::from(next());
        sum.series.bytes = u64::from(next()) << 12;
        sum.series.admission_ns = u64::from(next());
        sum.series.errors = std::array::from_fn(|_| next());
        sum.series.requeues = next();
        // These wrap.
        let mut cell = |used: bool| if used { next().wrapping_sub(1000) } else { 0 };
        sum.series.cells = std::array::from_fn(|place| std::array::from_fn(|_| cell(place < 50)));
        sum.sizes = Sizes {
            band_ns: std::array::from_fn(|_| u64::from(next())),
            requests: std::array::from_fn(|_| next()),
            bands: std::array::from_fn(|_| std::array::from_fn(|_| next())),
            undispatched: u64::from(next()),
        };
        SlotReading { sum, completions: vec![next(), 0, next()], has_sizes: true }
    }

    #[test]
    fn readings_round_trip() {
        for reading in [reading(1), reading(1 << 20), SlotReading::ZERO] {
            assert_eq!(from_record(&to_record(&reading)), Some(reading));
        }
    }

    /// Restored totals keep counting like the originals: across a wrap, with a baseline, with and without workloads.
    #[test]
    fn kept_totals_continue_unchanged() {
        let key = Key::new(9, 1);
        for reference in
            [None, Some(Entry { bytes: 512, queue_ns: 7, device_ns: 3, cells: [2; _], ..Entry::ZERO })]
        {
            let new = || Totals::from_baseline(1, reading(3));
            let (mut totals, mut kept) = (new(), new());
            for scale in [4, 4, 4, 4, 5, 1 << 10, 1 << 15, 1 << 15, 1 << 16] {
                kept = Totals::from_record(&kept.to_record(key, 7)).unwrap();
                assert!(kept.last == totals.last);
                let grown = totals.add(reading(scale), reference.as_ref());
                assert_eq!(kept.add(reading(scale), reference.as_ref()), grown);
                assert_eq!(kept.to_record(key, 7), totals.to_record(key, 7));
            }
            assert!(totals.count() > 0);
        }
    }

    #[test]
    fn rejects_invalid_records() {
        let record = Totals::from_baseline(0, reading(2)).to_record(Key::new(1, 0), 0);
        assert!(Totals::from_record(&record).is_some());
        let mut long = record.clone();
        long.ahead.as_mut().unwrap().cells.extend([250, 50, 1]);
        assert!(Totals::from_record(&long).is_none());
        let mut many_cpus = record;
        many_cpus.completions.cpus = u32::MAX;
        assert!(Totals::from_record(&many_cpus).is_none());
    }
}
