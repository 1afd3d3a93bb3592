//! A simulated machine with any number of CPUs, for the part of a collection whose time depends on that number. Counters are read
//! from the kernel with the same call, and summed and widened by the same code. They are in a plain array whose values are as
//! large as those in a per-CPU array: the kernel copies such a value in one piece instead of CPU by CPU, but copies just as much.

use anyhow::{Context as _, Result};
use aya::maps::{Array, MapData};
use biolat_collect::collector::totals::Totals;
use biolat_common::size::Counters;
use biolat_model::snapshot::SeriesView;
use biolat_probe::{CountersValue, SlotBuffer, SlotReading};

pub(crate) struct Machine<const CPUS: usize> {
    map: Array<MapData, [CountersValue; CPUS]>,
    buffer: SlotBuffer<CountersValue>,
    totals: Vec<Totals>,
}

impl<const CPUS: usize> Machine<CPUS> {
    pub(crate) fn new(series: u32) -> Result<Self> {
        let mut map = Array::create(series, 0).context("cannot make a map")?;
        let value = Box::new([CountersValue::from(busy()); CPUS]);
        for index in 0..series {
            map.set(index, value.as_ref(), 0).context("cannot fill a map")?;
        }
        let totals = (0..series).map(|_| Totals::from_baseline(0, SlotReading::ZERO)).collect();
        Ok(Self { map, buffer: SlotBuffer::default(), totals })
    }

    /// Bytes of counters that a collection reads.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.len() * CPUS * size_of::<Counters>()
    }

    /// The part of a collection from reading the counters to building the exposed series.
    pub(crate) fn collect(&mut self) -> Result<Vec<SeriesView>> {
        for (index, totals) in (0..).zip(&mut self.totals) {
            totals.add(self.buffer.read_plain(&self.map, index)?, None);
        }
        Ok(self.totals.iter().map(|totals| totals.view("read".to_owned(), true, true)).collect())
    }
}

/// One CPU's counters of a drive under a varied load.
fn busy() -> Counters {
    let mut counters = Counters::ZERO;
    let series = &mut counters.series;
    (series.queue_ns, series.device_ns, series.bytes) = (1 << 40, 1 << 45, 1 << 50);
    for (number, cell) in (1..).zip(&mut series.cells[60..108]) {
        *cell = [number; 4];
    }
    counters.sizes.requests = [9; _];
    for band in &mut counters.sizes.bands {
        band[15..27].fill(5);
    }
    counters
}
