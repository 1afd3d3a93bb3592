//! A simulated machine with any number of CPUs, for the part of a collection whose time depends on that number: counters are read,
//! summed and widened by the same code as a probe's.

use anyhow::Result;
use biolat_collect::collector::totals::Totals;
use biolat_common::size::Counters;
use biolat_model::snapshot::SeriesView;
use biolat_probe::{SimulatedSeries, SlotReading};

pub(crate) struct Machine {
    cpus: u32,
    counters: SimulatedSeries,
    totals: Vec<Totals>,
}

impl Machine {
    pub(crate) fn new(series: u32, cpus: u32) -> Result<Self> {
        let counters = SimulatedSeries::new(series, cpus, &busy())?;
        let totals = (0..series).map(|_| Totals::from_baseline(0, SlotReading::ZERO)).collect();
        Ok(Self { cpus, counters, totals })
    }

    /// Bytes of counters that a collection reads.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.len() * self.cpus as usize * size_of::<Counters>()
    }

    /// The part of a collection from reading the counters to building the exposed series.
    /// With `busy`, all counters have changed since the last collection, otherwise none.
    pub(crate) fn collect(&mut self, busy: bool) -> Vec<SeriesView> {
        for (series, totals) in (0..).zip(&mut self.totals) {
            totals.add(self.counters.read(series, busy), None);
        }
        self.totals.iter().map(|totals| totals.view("read".to_owned(), true, true)).collect()
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
