//! A simulated machine with any number of CPUs, for the part of a collection whose time depends on them: the counters are read
//! from the kernel by the same call, and summed and widened by the same code. They are in a plain array whose values are as
//! long as those of a per-CPU array: the kernel copies such a value in one piece instead of CPU by CPU, but copies as much.

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

    /// Bytes of counters that a collection reads.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.len() * CPUS * size_of::<Series>()
    }

    /// The part of a collection from the counters to what is exposed.
    pub(crate) fn collect(&mut self) -> Result<Vec<SeriesView>> {
        for (index, totals) in (0..).zip(&mut self.totals) {
            totals.add(&self.buffer.read_plain(&self.map, index)?);
        }
        Ok(self.totals.iter().map(|totals| totals.view("read".to_owned(), true)).collect())
    }
}

/// One CPU's counters of a drive under a varied load.
fn busy() -> Series {
    let mut series = Series { queue_ns: 1 << 40, device_ns: 1 << 45, bytes: 1 << 50, ..Series::ZERO };
    for (number, cell) in (1..).zip(&mut series.cells[60..108]) {
        *cell = [number; 4];
    }
    series
}
