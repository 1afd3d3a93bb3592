//! A machine of any number of CPUs, as far as a pass's time depends on them: its counters, read from the kernel by the
//! same call, summed and widened by the same code. They stand in a plain array whose value is as long as that of a
//! per-CPU one: the kernel then copies it in one piece instead of CPU by CPU, on its way through the same memory.

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use biolat_common::series::Series;
use biolat_daemon::{
    collect::totals::Totals,
    probe::{SeriesBuffer, SeriesValue},
    snapshot::SeriesView,
};

pub(crate) struct Machine<const CPUS: usize> {
    map: Array<MapData, [SeriesValue; CPUS]>,
    buffer: SeriesBuffer,
    totals: Vec<Totals>,
}

impl<const CPUS: usize> Machine<CPUS> {
    pub(crate) fn new(series: u32) -> Result<Self> {
        let mut map = Array::create(series, 0).context("cannot make a map")?;
        let value = Box::new([SeriesValue::from(busy()); CPUS]);
        for index in 0..series {
            map.set(index, value.as_ref(), 0).context("cannot fill a map")?;
        }
        let totals = (0..series).map(|_| Totals::from_baseline(Series::ZERO)).collect();
        Ok(Self { map, buffer: SeriesBuffer::default(), totals })
    }

    /// Of counters that are read.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.len() * CPUS * size_of::<Series>()
    }

    /// What a pass does with counters, up to what is exposed.
    pub(crate) fn collect(&mut self) -> Result<Vec<SeriesView>> {
        for (index, totals) in (0..).zip(&mut self.totals) {
            totals.add(&self.buffer.read_plain(&self.map, index)?);
        }
        Ok(self.totals.iter().map(|totals| totals.view("read".to_owned(), true)).collect())
    }
}

/// What one CPU has counted of a drive under a varied load.
fn busy() -> Series {
    let mut series = Series { queue_ns: 1 << 40, device_ns: 1 << 45, bytes: 1 << 50, ..Series::ZERO };
    for (number, cell) in (1..).zip(&mut series.cells[60..108]) {
        *cell = [number; 3];
    }
    series
}
