//! The rows of a histogram: bounds, and for each phase a count and a bar.

use std::{collections::BTreeMap, fmt::Write as _};

use biolat_common::{
    bucket::{SCHEMA, TOP_EXPONENT, ZERO_EXPONENT},
    series::Phase,
};
use biolat_model::{
    histogram::{Bounds, Histogram},
    text::format,
};

use super::{INDENT, TextStyle};
use crate::window::Figures;

/// Minimum number of consecutive empty rows that are replaced by dots.
const MIN_GAP: usize = 5;

/// Longest bar, in characters.
const LONGEST_BAR: usize = 64;

/// A row: bounds, and the count in each histogram.
struct TextRow {
    bounds: Bounds,
    counts: Vec<u64>,
}

impl TextRow {
    fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| *count == 0)
    }
}

/// The rows from the lowest to the highest latency, at this schema.
fn rows(histograms: &[&Histogram], schema: u32) -> Vec<TextRow> {
    let (zero, top) = (ZERO_EXPONENT << schema, TOP_EXPONENT << schema);
    let counts: Vec<BTreeMap<i32, u64>> = histograms
        .iter()
        .map(|histogram| {
            let ends = [(zero, histogram.zero), (top + 1, histogram.overflow)];
            let all = histogram.at_schema(schema).into_iter().chain(ends);
            all.filter(|(_, count)| *count > 0).collect()
        })
        .collect();
    let first = counts.iter().filter_map(|counts| counts.keys().next()).min().copied();
    let last = counts.iter().filter_map(|counts| counts.keys().last()).max().copied();
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let bound = |index: i32| (f64::from(index) / f64::from(1 << schema)).exp2();
    let row = |index: i32| TextRow {
        bounds: match index {
            _ if index <= zero => Bounds::ZERO,
            _ if index > top => Bounds::OVERFLOW,
            _ => Bounds { lower: bound(index - 1), upper: bound(index) },
        },
        counts: counts.iter().map(|counts| counts.get(&index).copied().unwrap_or_default()).collect(),
    };
    (first..=last).map(row).collect()
}

impl TextStyle {
    /// Latency, and for each phase a count and a bar.
    pub(super) fn rows(&self, text: &mut String, figures: &Figures, phases: &[Phase]) {
        let histograms: Vec<_> = phases.iter().map(|&phase| figures.of(phase)).collect();
        let rows = rows(&histograms, if self.fine { SCHEMA } else { 0 });
        let labels: Vec<_> = rows.iter().map(|row| self.labels(row.bounds)).collect();
        let widest = |lengths: &mut dyn Iterator<Item = usize>| lengths.max().unwrap_or_default();
        let lower = widest(&mut labels.iter().map(|(lower, _)| lower.chars().count()));
        let upper = widest(&mut labels.iter().map(|(_, upper)| upper.chars().count()));
        let count = widest(&mut rows.iter().flat_map(|row| &row.counts).map(|&n| format::count(n).len()));
        let highest = |column: usize| rows.iter().map(|row| row.counts[column]).max().unwrap_or_default();
        let highest: Vec<u64> = (0..histograms.len()).map(highest).collect();

        let dash = self.numbers.dash();
        let left = INDENT + lower + 1 + dash.chars().count() + 1 + upper;
        let column = (self.width.saturating_sub(left) / histograms.len()).max(count + 7);
        // Two spaces before the count, one after it.
        let bar = (column - count - 3).min(LONGEST_BAR);
        if let [others @ .., last] = phases
            && !others.is_empty()
        {
            // Each name is printed above its bars.
            let names: String = others.iter().map(|phase| format!("{:<column$}", phase.name())).collect();
            let line = format!("{:1$}{names}{2}", "", left + 2 + count + 1, last.name());
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let mut skipped = 0;
        for (number, (row, (from, to))) in rows.iter().zip(&labels).enumerate() {
            let is_gap = || rows[number..].iter().take_while(|row| row.is_empty()).count() >= MIN_GAP;
            if row.is_empty() && (skipped > 0 || is_gap()) {
                if skipped == 0 {
                    let dots = if self.numbers.unicode { "⋮" } else { ":" };
                    let _ = writeln!(text, "{:INDENT$}{dots:>lower$}", "");
                }
                skipped += 1;
                continue;
            }
            skipped = 0;
            let _ = write!(text, "{:INDENT$}{from:>lower$} {dash} {to:>upper$}", "");
            for (at, counted) in row.counts.iter().enumerate() {
                let share = *counted as f64 / highest[at].max(1) as f64;
                let is_last = at + 1 == row.counts.len();
                let bar = self.terminal.bar(share, bar, !is_last);
                let _ = write!(text, "  {:>count$}", format::count(*counted));
                if !bar.is_empty() {
                    let _ = write!(text, " {bar}");
                }
            }
            text.push('\n');
        }
    }

    fn labels(&self, Bounds { lower, upper }: Bounds) -> (String, String) {
        let latency = |seconds: f64| self.numbers.latency(seconds);
        (
            if lower == 0.0 { "0".to_owned() } else { latency(lower) },
            if upper.is_infinite() { String::new() } else { latency(upper) },
        )
    }
}
