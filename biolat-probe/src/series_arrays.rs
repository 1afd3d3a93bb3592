//! The arrays with the counters of the series, for one of the two programs. They are read in place.

#![allow(unsafe_code, reason = "reads memory that the probe writes")]

use std::{mem::offset_of, os::fd::BorrowedFd};

use anyhow::{Context as _, Result};
use aya::maps::{ArrayOfMaps, MapData};
use biolat_common::{
    series::{Phase, Series},
    size::{Counters, Sizes},
    slot::{CHUNK_SLOTS, array_index},
};

use super::{
    banks::Bank,
    counter_array::{MappedArray, Row, Shape, create},
    series_maps::SlotReading,
    settled::LastReading,
    sys,
};

/// Size of the counters of a series on one CPU, in bytes.
pub(super) const fn series_bytes(sizes: bool) -> u32 {
    (if sizes { size_of::<Counters>() } else { size_of::<Series>() }) as u32
}

pub(super) struct SeriesArrays {
    /// The first bank's counters of the slots that exist from the start. Only the first program has this.
    first: Option<MappedArray>,
    /// The probe's array of chunks.
    outer: ArrayOfMaps<MapData>,
    /// By chunk and bank; `None` for those in `first`.
    chunks: Vec<Vec<Option<MappedArray>>>,
    shape: Shape,
    has_sizes: bool,
    /// By slot.
    last: Vec<LastReading>,
}

impl SeriesArrays {
    /// Only the array of the first slots, if there is one. With `sizes`, the arrays have size counters.
    pub(super) fn new(
        first: Option<MapData>,
        outer: ArrayOfMaps<MapData>,
        rows: u32,
        slots: u32,
        sizes: bool,
    ) -> Result<Self> {
        let shape = Shape { length: CHUNK_SLOTS, rows, row_bytes: series_bytes(sizes) };
        let first =
            first.map(|first| MappedArray::new(first, Shape { length: slots, ..shape })).transpose()?;
        Ok(Self { first, outer, chunks: Vec::new(), shape, has_sizes: sizes, last: Vec::new() })
    }

    /// Creates the missing arrays of the first `chunks` chunks in these banks, and adds them to the probe.
    pub(super) fn provide(&mut self, chunks: usize, banks: &[Bank]) -> Result<()> {
        for chunk in 0..chunks {
            if self.chunks.len() == chunk {
                self.chunks.push(Vec::new());
            }
            for (number, bank) in banks.iter().enumerate().skip(self.chunks[chunk].len()) {
                let array = if self.is_in_first(chunk, number) {
                    None
                } else {
                    let array = MappedArray::new(create(self.shape, bank.node)?, self.shape)?;
                    self.outer
                        .set(array_index(chunk as u32, number as u32), array.map(), 0)
                        .context("cannot add counters for series to the probe")?;
                    Some(array)
                };
                self.chunks[chunk].push(array);
            }
        }
        Ok(())
    }

    fn is_in_first(&self, chunk: usize, bank: usize) -> bool {
        let slots = self.first.as_ref().map_or(0, MappedArray::length);
        bank == 0 && (chunk as u32) < slots / CHUNK_SLOTS
    }

    /// Uses the arrays that another process has added, by chunk and bank; `None` for those in the array of the first slots.
    pub(super) fn continue_with(&mut self, chunks: Vec<Vec<Option<MapData>>>) -> Result<()> {
        let mapped = |array: Option<_>| array.map(|array| MappedArray::new(array, self.shape)).transpose();
        let chunks = chunks.into_iter().map(|banks| banks.into_iter().map(mapped).collect());
        self.chunks = chunks.collect::<Result<_>>()?;
        Ok(())
    }

    /// Number of chunks that have counters in this number of banks.
    pub(super) fn complete_chunks(&self, banks: usize) -> usize {
        self.chunks.iter().take_while(|of_banks| of_banks.len() == banks).count()
    }

    /// Number of chunks.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Size of all arrays, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().flatten().flatten();
        chunks.chain(&self.first).map(MappedArray::bytes).sum()
    }

    /// The chunks, with their indices in the probe's array.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, BorrowedFd<'_>)> {
        self.chunks.iter().enumerate().flat_map(|(chunk, banks)| {
            banks.iter().enumerate().filter_map(move |(number, array)| {
                Some((array_index(chunk as u32, number as u32), array.as_ref()?.fd()))
            })
        })
    }

    /// Reads the counters of a slot on a machine with this number of CPUs. Zero if the slot has none here.
    pub(super) fn read(&mut self, slot: u32, banks: &[Bank], cpus: usize) -> Result<SlotReading> {
        self.map(slot)?;
        let rows = rows(self.chunks.get((slot / CHUNK_SLOTS) as usize), self.first.as_ref(), slot, banks);
        let has_sizes = self.has_sizes;
        let read = || sum(rows.clone(), has_sizes, cpus);
        if !has_sizes {
            // Nothing but the counters themselves would tell whether they have changed.
            return Ok(read().1);
        }
        if self.last.len() <= slot as usize {
            self.last.resize_with(slot as usize + 1, || LastReading::NONE);
        }
        Ok(self.last[slot as usize].update(rows.clone().map(|(row, _)| checksum(row)), read).clone())
    }

    /// Maps the counters of a slot.
    fn map(&mut self, slot: u32) -> Result<()> {
        for array in self.chunks.get_mut((slot / CHUNK_SLOTS) as usize).into_iter().flatten() {
            match (array, &mut self.first) {
                (Some(array), _) => array.map_up_to(slot % CHUNK_SLOTS)?,
                (None, Some(first)) => first.map_up_to(slot)?,
                (None, None) => {}
            }
        }
        Ok(())
    }
}

/// The rows of a slot in its chunk, with their CPUs.
fn rows<'a>(
    chunk: Option<&'a Vec<Option<MappedArray>>>,
    first: Option<&'a MappedArray>,
    slot: u32,
    banks: &'a [Bank],
) -> impl Iterator<Item = (Row, u32)> + Clone + 'a {
    let arrays = chunk.into_iter().flatten().zip(banks);
    arrays.flat_map(move |(array, bank)| {
        let array =
            array.as_ref().map(|array| (array, slot % CHUNK_SLOTS)).or(first.map(|first| (first, slot)));
        array.into_iter().flat_map(|(array, index)| {
            (0..).zip(&bank.cpus).map(move |(row, &cpu)| (array.row(index, row), cpu))
        })
    })
}

/// The counters of series on a machine with any number of CPUs, without a probe. The collector's benchmark reads them as if they
/// were a probe's.
pub struct SimulatedSeries {
    arrays: Vec<MappedArray>,
    cpus: u32,
    last: Vec<LastReading>,
}

impl SimulatedSeries {
    /// Each of these CPUs has the same counters of each series.
    pub fn new(series: u32, cpus: u32, counters: &Counters) -> Result<Self> {
        let shape = Shape { length: CHUNK_SLOTS, rows: cpus, row_bytes: series_bytes(true) };
        let value = vec![*counters; cpus as usize];
        let arrays = (0..series.div_ceil(CHUNK_SLOTS)).map(|_| {
            let array = create(shape, None)?;
            for slot in 0..CHUNK_SLOTS {
                // SAFETY: a value has this number of rows, which are counters.
                unsafe { sys::write_entry(&array, slot, value.as_ptr()) }.context("cannot fill an array")?;
            }
            let mut array = MappedArray::new(array, shape)?;
            array.map_up_to(CHUNK_SLOTS - 1)?;
            Ok(array)
        });
        let last = (0..series).map(|_| LastReading::NONE).collect();
        Ok(Self { arrays: arrays.collect::<Result<_>>()?, cpus, last })
    }

    /// Reads the counters of a series. With `changed`, as if they had changed since the last time.
    pub fn read(&mut self, series: u32, changed: bool) -> SlotReading {
        let (array, index) = (&self.arrays[(series / CHUNK_SLOTS) as usize], series % CHUNK_SLOTS);
        let rows = (0..self.cpus).map(|cpu| (array.row(index, cpu), cpu));
        let last = &mut self.last[series as usize];
        if changed {
            *last = LastReading::NONE;
        }
        let read = || sum(rows.clone(), true, self.cpus as usize);
        last.update(rows.clone().map(|(row, _)| checksum(row)), read).clone()
    }
}

/// Adds up the counters of these rows. With size counters, returns their checksums too.
fn sum(rows: impl Iterator<Item = (Row, u32)>, has_sizes: bool, cpus: usize) -> (Vec<u64>, SlotReading) {
    let mut reading = SlotReading { sum: Counters::ZERO, completions: vec![0; cpus], has_sizes };
    let mut checksums = Vec::new();
    for (row, cpu) in rows {
        if has_sizes {
            checksums.push(checksum(row));
            if checksums.last() == Some(&0) {
                // Nothing has been counted: on many machines, most drives complete their I/O on a few CPUs.
                continue;
            }
        }
        add(row, cpu as usize, &mut reading);
    }
    (checksums, reading)
}

fn add(row: Row, cpu: usize, reading: &mut SlotReading) {
    let completions = if reading.has_sizes {
        // SAFETY: a row consists of these counters.
        let counters = unsafe { row.counters::<Counters>() };
        reading.sum.merge(counters);
        counters.sizes.requests.iter().fold(0_u32, |sum, count| sum.wrapping_add(*count))
    } else {
        // SAFETY: a row without size counters is a series.
        let series = unsafe { row.counters::<Series>() };
        reading.sum.series.merge(series);
        series.cells.iter().fold(0_u32, |sum, cell| sum.wrapping_add(cell[Phase::Total as usize]))
    };
    if let Some(sum) = reading.completions.get_mut(cpu) {
        *sum = sum.wrapping_add(completions);
    }
}

/// The sum of the counters at the start of a row and of the numbers of requests by size. Anything that the probe counts changes one
/// of them, and they only grow.
fn checksum(row: Row) -> u64 {
    const REQUESTS: usize = offset_of!(Counters, sizes) + offset_of!(Sizes, requests);
    const REQUESTS_END: usize = offset_of!(Counters, sizes) + offset_of!(Sizes, bands);
    // SAFETY: both ranges are in a row with size counters.
    unsafe { row.sum(0, offset_of!(Series, cells)).wrapping_add(row.sum(REQUESTS, REQUESTS_END)) }
}

#[cfg(test)]
mod tests {
    use biolat_common::size::Counters;

    use super::{Row, checksum, sum};

    fn row(counters: &Counters) -> Row {
        Row::of(counters)
    }

    #[test]
    fn adds_rows_of_several_cpus() {
        let mut counters = Counters::ZERO;
        (counters.series.cells[7], counters.series.queue_ns, counters.sizes.requests[3]) = ([2; _], 9, 2);
        let (_, reading) = sum([0, 1, 1, 5].map(|cpu| (row(&counters), cpu)).into_iter(), true, 2);
        assert_eq!((reading.sum.series.cells[7][0], reading.sum.sizes.requests[3]), (8, 8));
        assert_eq!((reading.sum.series.queue_ns, reading.completions), (36, vec![2, 4]));
    }

    #[test]
    fn any_count_is_seen() {
        assert_eq!(checksum(row(&Counters::ZERO)), 0);
        let changes: [fn(&mut Counters); 4] = [
            |counters| counters.series.requeues = 1,
            |counters| counters.series.errors[20] = 1,
            |counters| counters.series.admission_ns = 1,
            |counters| counters.sizes.requests[17] = 1,
        ];
        for change in changes {
            let mut counters = Counters::ZERO;
            change(&mut counters);
            assert_ne!(checksum(row(&counters)), 0);
        }
    }
}
