//! Which processes do the I/O: a table for each device, with a row for each process.

use std::fmt::Write as _;

use biolat_collect::processes::ProcessWindow;
use biolat_model::{losses, text::format};
use biolat_system::terminal::{Highlight, wrapped};

use super::{
    INDENT, TextStyle,
    ranking::{MAX_ROWS, RankedRow},
    sizes::ERROR_PERCENT,
    who::TITLES,
};
use crate::process_figures::{DeviceProcesses, ProcessRow};

/// Explains rows without a process.
const ABOUT_UNKNOWN: &str =
    "unknown: requests that were in flight when the measurement began, or whose start was not seen";

/// Why these completions are not counted.
fn meaning(reason: &str) -> &str {
    match reason {
        // The probe has an understudy, so it means something else there.
        "recursion" => "the kernel did not run the program, because it was already running on that CPU",
        "missed" => "completed according to diskstats, but the kernel did not run the program",
        reason => losses::meaning(reason),
    }
}

impl TextStyle {
    /// Formats a window.
    pub(crate) fn processes(&self, window: &ProcessWindow, devices: &[DeviceProcesses<'_>]) -> String {
        let seconds = window.length.as_secs_f64();
        let tables = devices.iter().map(|device| self.process_table(device, seconds));
        let mut text = tables.collect::<Vec<_>>().join("\n");
        if devices.is_empty() {
            let _ = writeln!(text, "no I/O completed in {}", format::duration(seconds));
        }
        for (reason, count) in &window.lost {
            let line = format!("not counted: {} {reason} ({})", format::count(*count), meaning(reason));
            self.note(&mut text, Highlight::Note, &line);
        }
        text
    }

    fn process_table(&self, device: &DeviceProcesses<'_>, seconds: f64) -> String {
        let mut text = String::new();
        let model = if device.model.is_empty() { String::new() } else { format!(" ({})", device.model) };
        self.title(&mut text, &format!("{}{model}: processes by share of the drive's time", device.device));
        let (shown, others) = device.rows.split_at(device.rows.len().min(MAX_ROWS));
        let has_errors = shown.iter().any(|row| row.all.errors > 0);
        let columns = if has_errors { TITLES.len() } else { TITLES.len() - 1 };
        let rows = shown.iter().map(|row| RankedRow {
            name: row.name(),
            share: row.share,
            cells: self.process_cells(row, seconds),
        });
        self.ranking(&mut text, "process", &TITLES[..columns], &rows.collect::<Vec<_>>());
        if !others.is_empty() {
            let share = format::share(others.iter().map(|row| row.share).sum());
            let line = format!("and {} more with {share}: see --json", format::count(others.len() as u64));
            self.indented(&mut text, Highlight::Note, &line);
        }
        if shown.iter().any(|row| row.process.pid == 0) {
            self.indented(&mut text, Highlight::Note, ABOUT_UNKNOWN);
        }
        let ios: u64 = device.rows.iter().map(|row| row.all.ios()).sum();
        let bytes: u64 = device.rows.iter().map(|row| row.all.bytes).sum();
        let depth: f64 = device.rows.iter().map(|row| row.all.seconds()).sum();
        let line = format!(
            "{} I/O and {} in {}, {}/s, mean depth {}, percentiles (device latency) {}",
            format::count(ios),
            format::bytes(bytes as f64),
            format::duration(seconds),
            format::rate(ios as f64 / seconds),
            format::short_number(depth / seconds),
            self.numbers.error(ERROR_PERCENT)
        );
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&line, self.width, INDENT));
        text
    }

    fn process_cells(&self, row: &ProcessRow<'_>, seconds: f64) -> Vec<String> {
        let figures = &row.all;
        let at = |share| {
            figures.latency.percentile(share).map(|bounds| self.numbers.bounds(bounds)).unwrap_or_default()
        };
        vec![
            format::share(row.share),
            format::rate(figures.ios() as f64 / seconds),
            format::short_number(figures.bytes as f64 / seconds / 1e6),
            format::short_number(figures.seconds() / seconds),
            at(0.5),
            at(0.99),
            if figures.errors > 0 { format::count(figures.errors) } else { String::new() },
        ]
    }
}

#[cfg(test)]
mod tests {
    use biolat_collect::processes::ProcessWindow;
    use biolat_system::terminal::Terminal;

    use super::super::TextStyle;
    use crate::process_figures::{by_device, tests::window};

    #[test]
    fn formats_a_table_per_device() {
        let terminal = Terminal { color: false, unicode: true, is_terminal: true };
        let style = TextStyle { terminal, width: 100, numbers: terminal.numbers(false), fine: false };
        let window = window();
        let text = style.processes(&window, &by_device(&window));
        assert!(text.starts_with("sda (SSD): processes by share of the drive's time\n  process "), "{text}");
        for line in ["  p1 (1)     50 % ", "  [p2] (2)   50 % ", "\nsdb: processes"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(text.contains("\nnot counted: 2 recursion (") && !text.contains("errors"), "{text}");
        let idle = ProcessWindow { usage: Vec::new(), lost: Default::default(), ..window };
        assert_eq!(style.processes(&idle, &by_device(&idle)), "no I/O completed in 5 s\n");
    }
}
