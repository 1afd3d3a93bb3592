//! Keeps the daemon's counters for one drive. As in the probe, all histograms count the same I/Os.

use biolat_common::{
    bucket::{self, LIMIT_NS, cell},
    series::{PHASES, Phase},
    size::{self, BAND_CELLS, BAND_NAMES, BANDS, band_cell, place},
};
use biolat_model::{
    band_histogram::BandHistogram,
    histogram::Histogram,
    size_histogram::SizeHistogram,
    snapshot::{BandView, SeriesView, SizesView},
};
use rand::RngExt as _;
use rand_distr::{Distribution as _, StandardNormal};

use super::{
    Random,
    drive_model::Op,
    latency::{binomial, middle},
};

/// Five points that stand for a normal distribution: its 10th, 30th, 50th, 70th and 90th percentiles, in standard deviations.
const DEVIATIONS: [f64; 5] = [-1.28, -0.52, 0.0, 0.52, 1.28];
/// Standard deviation of the queue latency, in octaves.
const SPREAD: f64 = 0.7;

/// Counters for one op of a drive.
pub(crate) struct Counters {
    bytes: u64,
    /// Cells by phase. [`Counters::add`] counts in the device phase, [`Counters::queue`] in the others.
    cells: [[u64; bucket::CELLS]; PHASES],
    sums: [u128; PHASES],
    sizes: [u64; size::CELLS],
    bands: [[u64; BAND_CELLS]; BANDS],
    band_sums: [u128; BANDS],
    /// I/Os counted in the device phase, but not yet in the queue and total phases.
    pending: [u64; bucket::CELLS],
}

/// Model of the queue latency.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    /// Median queue latency of requests that do not wait, in seconds.
    pub(crate) passage: f64,
    /// Share of requests that wait for others.
    pub(crate) waiting: f64,
    /// Median queue latency of requests that wait, in seconds.
    pub(crate) wait: f64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            bytes: 0,
            cells: [[0; _]; _],
            sums: [0; _],
            sizes: [0; _],
            bands: [[0; _]; _],
            band_sums: [0; _],
            pending: [0; _],
        }
    }
}

impl Counters {
    /// Counts I/Os of this size in this latency cell.
    pub(crate) fn add(&mut self, bytes: u32, cell: usize, count: u64) {
        let sum = u128::from(middle(cell)) * u128::from(count);
        let place = place(bytes);
        self.bytes += u64::from(bytes) * count;
        self.sizes[place.cell()] += count;
        if bytes > 0 {
            self.bands[place.band()][band_cell(cell)] += count;
            self.band_sums[place.band()] += sum;
        }
        self.cells[Phase::Device as usize][cell] += count;
        self.sums[Phase::Device as usize] += sum;
        self.pending[cell] += count;
    }

    /// Counts the queue and total phases of the I/Os added since the last call.
    pub(crate) fn queue(&mut self, queue: Queue, random: &mut Random) {
        let shift: f64 = StandardNormal.sample(random);
        let times = |median: f64| {
            DEVIATIONS.map(|deviation| (median * 1e9 * (SPREAD * (deviation + 0.2 * shift)).exp2()) as u64)
        };
        let (passages, waits) = (times(queue.passage), times(queue.wait));
        for at in 0..self.pending.len() {
            let count = std::mem::take(&mut self.pending[at]);
            if count > 0 {
                let waiting = binomial(count, queue.waiting, random);
                self.count_queued(at, count - waiting, passages, random);
                self.count_queued(at, waiting, waits, random);
            }
        }
    }

    /// Counts requests in a device latency cell, spread evenly over the queue latencies in `times`.
    fn count_queued(&mut self, device: usize, count: u64, times: [u64; 5], random: &mut Random) {
        if count == 0 {
            return;
        }
        let (each, rest) = (count / times.len() as u64, count as usize % times.len());
        // The remainder of the division is handed out starting at a random latency.
        let first = if rest > 0 { random.random_range(0..times.len()) } else { 0 };
        for n in 0..times.len() {
            let queued = times[(first + n) % times.len()];
            let taken = each + u64::from(n < rest);
            if taken == 0 {
                break;
            }
            for (phase, ns) in [(Phase::Queue, queued), (Phase::Total, queued + middle(device))] {
                self.cells[phase as usize][cell(ns.min(LIMIT_NS - 1))] += taken;
                self.sums[phase as usize] += u128::from(ns) * u128::from(taken);
            }
        }
    }

    /// Returns the series as the daemon shows it, or `None` for flushes if there were none.
    pub(crate) fn view(&self, op: Op) -> Option<SeriesView> {
        if op == Op::Flush && self.sizes == [0; _] {
            return None;
        }
        let bands = (0..BANDS)
            .map(|band| BandView {
                size: BAND_NAMES[band].into(),
                device: BandHistogram::from_cells(&self.bands[band], self.band_sums[band]),
            })
            .filter(|band| !band.device.is_empty());
        Some(SeriesView {
            op: op.name().to_owned(),
            bytes: self.bytes,
            histograms: std::array::from_fn(|phase| {
                Histogram::from_cells(self.cells[phase], self.sums[phase])
            }),
            sizes: Some(SizesView {
                requests: SizeHistogram::from_cells(&self.sizes),
                bands: bands.collect(),
            }),
            ..SeriesView::default()
        })
    }
}
