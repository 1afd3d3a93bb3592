//! Device latency by size: a table for each device and op, with a row for each band of sizes.

use std::fmt::Write as _;

use biolat_common::{
    bucket::{TOP_EXPONENT, ZERO_EXPONENT},
    series::Phase,
};
use biolat_model::{band_histogram::BandHistogram, saturating::add, text::format};
use biolat_system::terminal::{Highlight, wrapped};

use super::{INDENT, TextStyle, full_device_name, widths};
use crate::{
    sizes::{SizeWindow, range},
    window::{DeviceWindow, Window},
};

/// Maximum error of a percentile with two buckets an octave: 2^(1/4) is 19 % above 1.
pub(super) const ERROR_PERCENT: f64 = 19.0;

/// Minimum width of a chart: its first and last latency are printed above it.
const NARROWEST_CHART: usize = 12;

/// A row: the cells, and a count for each octave of latencies.
struct SizeRow {
    cells: [String; 6],
    octaves: Vec<(i32, u64)>,
}

impl TextStyle {
    /// A table for each device and op with latencies by size.
    pub(super) fn size_tables(&self, window: &Window) -> Vec<String> {
        let ops = window.devices.iter().flat_map(|device| device.ops.iter().map(move |op| (device, op)));
        let tables = ops.filter_map(|(device, op)| {
            let sizes = op.sizes.as_ref()?;
            sizes.busy().next().map(|_| self.size_table(device, &op.name, sizes, window))
        });
        tables.collect()
    }

    fn size_table(&self, device: &DeviceWindow, op: &str, sizes: &SizeWindow, window: &Window) -> String {
        let mut text = String::new();
        let phase = if device.has(Phase::Device) { Phase::Device } else { Phase::Total };
        self.title(
            &mut text,
            &format!("{} {op}: {} latency by size", full_device_name(device), phase.name()),
        );
        let rows: Vec<_> = sizes.busy().map(|(band, latencies)| self.size_row(band, latencies)).collect();
        let titles = ["size", "I/Os", "mean", "p50", "p99", "max"].map(str::to_owned);
        let widths = widths(rows.iter().map(|row| &row.cells).chain([&titles]));
        let left = INDENT + widths.iter().sum::<usize>() + 2 * widths.len();
        let chart = Chart::of(&rows, self.width.saturating_sub(left));
        let head = chart.as_ref().map(|chart| chart.head(self)).unwrap_or_default();
        let lines = rows.iter().map(|row| {
            let bars = chart.as_ref().map(|chart| chart.row(self, &row.octaves)).unwrap_or_default();
            (&row.cells, self.terminal.paint(Highlight::Bar, &bars))
        });
        for (cells, chart) in std::iter::once((&titles, head)).chain(lines) {
            let [size, numbers @ ..] = cells;
            let mut line = format!("{:INDENT$}{size:<1$}", "", widths[0]);
            for (number, width) in numbers.iter().zip(&widths[1..]) {
                let _ = write!(line, "  {number:>width$}");
            }
            let _ = writeln!(text, "{}", format!("{line}  {chart}").trim_end());
        }
        let ios = sizes.busy().fold(0_u64, |ios, (_, latencies)| ios.saturating_add(latencies.count()));
        let line = format!(
            "{} I/O in {}, {}/s, percentiles {}",
            format::count(ios),
            format::duration(window.seconds),
            format::rate(window.rate(ios)),
            self.numbers.error(ERROR_PERCENT)
        );
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&line, self.width, INDENT));
        if !device.has(Phase::Device) && !device.hint.is_empty() {
            self.indented(&mut text, Highlight::Note, &device.hint);
        }
        text
    }

    fn size_row(&self, band: usize, latencies: &BandHistogram) -> SizeRow {
        let at =
            |share| latencies.percentile(share).map(|bounds| self.numbers.bounds(bounds)).unwrap_or_default();
        let histogram = latencies.at_most_schema_1();
        let ends = [(ZERO_EXPONENT, histogram.zero), (TOP_EXPONENT + 1, histogram.overflow)];
        SizeRow {
            cells: [
                range(band).to_owned(),
                format::count(latencies.count()),
                latencies.mean().map(|mean| self.numbers.latency(mean)).unwrap_or_default(),
                at(0.5),
                at(0.99),
                at(1.0),
            ],
            octaves: histogram.octaves().into_iter().chain(ends).filter(|(_, count)| *count > 0).collect(),
        }
    }
}

/// A chart with a column per octave of latencies, or per several octaves if there is less room.
struct Chart {
    first: i32,
    octaves: usize,
    per_column: usize,
}

impl Chart {
    /// A chart with at most this many columns. `None` if there is not enough room.
    fn of(rows: &[SizeRow], columns: usize) -> Option<Self> {
        let octaves = || rows.iter().flat_map(|row| &row.octaves).map(|(octave, _)| *octave);
        let (first, last) = (octaves().min()?, octaves().max()?);
        let octaves = usize::try_from(last - first + 1).ok()?;
        (columns >= NARROWEST_CHART).then(|| Self { first, octaves, per_column: octaves.div_ceil(columns) })
    }

    fn columns(&self) -> usize {
        self.octaves.div_ceil(self.per_column)
    }

    /// The lowest and the highest latency.
    fn head(&self, style: &TextStyle) -> String {
        let end = self.first + self.octaves as i32 - 1;
        let low = if self.first <= ZERO_EXPONENT {
            "0".to_owned()
        } else {
            style.numbers.short_latency(f64::from(self.first - 1).exp2())
        };
        let high = if end > TOP_EXPONENT {
            format!(">{}", style.numbers.short_latency(f64::from(TOP_EXPONENT).exp2()))
        } else {
            style.numbers.short_latency(f64::from(end).exp2())
        };
        let gap = self.columns().saturating_sub(low.chars().count() + high.chars().count()).max(1);
        format!("{low}{:gap$}{high}", "")
    }

    fn row(&self, style: &TextStyle, octaves: &[(i32, u64)]) -> String {
        let mut columns = vec![0_u64; self.columns()];
        for &(octave, count) in octaves {
            add(&mut columns[(octave - self.first) as usize / self.per_column], count);
        }
        let highest = columns.iter().copied().max().unwrap_or_default().max(1) as f64;
        columns.iter().map(|&count| style.terminal.height(Some(count as f64 / highest))).collect()
    }
}
