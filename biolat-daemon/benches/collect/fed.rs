//! A machine of any number of CPUs, as far as a pass's time depends on them: its counters, read from the kernel by the
//! same call, summed and widened by the same code. They stand in a plain array whose value is as long as that of a
//! per-CPU one: the kernel then copies it in one piece instead of CPU by CPU, on its way through the same memory.

use std::os::fd::AsFd as _;

use anyhow::{Context as _, Result};
use aya::maps::{Array, IterableMap as _, MapData};
use biolat_common::series::Series;
use biolat_daemon::{collect::totals::Totals, probe::Counters, snapshot::SeriesView};

/// What each of so many CPUs has counted.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Value<const CPUS: usize>([Series; CPUS]);

// SAFETY: `repr(C)` integers without padding.
unsafe impl<const CPUS: usize> aya::Pod for Value<CPUS> {}

pub(crate) struct Machine<const CPUS: usize> {
    map: Array<MapData, Value<CPUS>>,
    counters: Counters,
    totals: Vec<Totals>,
}

impl<const CPUS: usize> Machine<CPUS> {
    pub(crate) fn new(series: u32) -> Result<Self> {
        let mut map = Array::create(series, 0).context("cannot make a map")?;
        let value = Box::new(Value([busy(); CPUS]));
        for index in 0..series {
            map.set(index, value.as_ref(), 0).context("cannot fill a map")?;
        }
        let totals = (0..series).map(|_| Totals::from_baseline(Series::ZERO)).collect();
        Ok(Self { map, counters: Counters::of_cpus(CPUS), totals })
    }

    /// Of counters that are read.
    pub(crate) fn bytes(&self) -> usize {
        self.totals.len() * size_of::<Value<CPUS>>()
    }

    /// What a pass does with counters, up to what is exposed.
    pub(crate) fn collect(&mut self) -> Result<Vec<SeriesView>> {
        let map = self.map.map().fd().as_fd();
        for (index, totals) in (0..).zip(&mut self.totals) {
            totals.add(&self.counters.read(map, index)?);
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
