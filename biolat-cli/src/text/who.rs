//! Who does the I/O: a table for each device, with a row for each workload.

use std::fmt::Write as _;

use biolat_common::series::Phase;
use biolat_model::text::format;
use biolat_system::terminal::{Highlight, wrapped};

use super::{INDENT, TextStyle, full_device_name, sizes::ERROR_PERCENT};
use crate::{
    window::{DeviceWindow, Window},
    workloads::{ROOT, WorkloadWindow},
};

/// Maximum number of workloads shown per device.
const MAX_ROWS: usize = 20;

/// Shortest and longest bar, in characters.
const BAR: std::ops::RangeInclusive<usize> = 4..=20;

/// Minimum width for names.
const SHORTEST_NAME: usize = 12;

/// Explains the root cgroup below a table that contains it.
const ABOUT_ROOT: &str = "root cgroup: the kernel's own I/O (journal, metadata, flushes), and I/O of processes in it and in \
                          cgroups without the io controller (see biolat check)";

/// Titles of the numbers. The last one is only shown if there are errors.
const TITLES: [&str; 7] = ["share", "IOPS", "MB/s", "depth", "p50", "p99", "errors"];

impl TextStyle {
    /// A table for each device with I/O.
    pub(super) fn who_tables(&self, window: &Window) -> Vec<String> {
        let tables = window.devices.iter().filter_map(|device| {
            let workloads = device.workloads.as_deref().filter(|workloads| !workloads.is_empty())?;
            Some(self.who_table(device, workloads, window))
        });
        tables.collect()
    }

    fn who_table(&self, device: &DeviceWindow, workloads: &[WorkloadWindow], window: &Window) -> String {
        let mut text = String::new();
        let of_what =
            if device.has(Phase::Device) { "the drive's time" } else { "the time in queue and drive" };
        let title = format!("{}: workloads by share of {of_what}", full_device_name(device));
        self.title(&mut text, &title);
        let (shown, others) = workloads.split_at(workloads.len().min(MAX_ROWS));
        let has_errors = shown.iter().any(|workload| workload.all.errors > 0);
        let columns = if has_errors { TITLES.len() } else { TITLES.len() - 1 };
        let rows: Vec<_> = shown.iter().map(|workload| self.who_cells(workload, window)).collect();
        let width = |column: usize| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.fold(TITLES[column].len(), usize::max)
        };
        let widths: Vec<_> = (0..columns).map(width).collect();
        // Two spaces before each number.
        let left = INDENT + widths.iter().map(|width| width + 2).sum::<usize>();
        let free = self.width.saturating_sub(left);
        let longest =
            shown.iter().map(|workload| workload.name.chars().count()).fold("workload".len(), usize::max);
        let has_bars = free > SHORTEST_NAME + BAR.start();
        let for_name = if has_bars { free - BAR.start() - 1 } else { free.max(SHORTEST_NAME) };
        let name = longest.min(for_name);
        let bar = if has_bars { (free - name - 1).min(*BAR.end()) } else { 0 };
        let bars = shown.iter().map(|workload| match bar {
            0 => String::new(),
            _ => format!(" {}", self.terminal.bar(workload.share, bar, true)),
        });
        let head = (
            "workload".to_owned(),
            TITLES.map(str::to_owned),
            if bar > 0 { " ".repeat(bar + 1) } else { String::new() },
        );
        let names = shown.iter().map(|workload| self.terminal.cut(&workload.name, name));
        let rows = names.zip(rows).zip(bars).map(|((name, cells), bar)| (name, cells, bar));
        for (workload, cells, bar) in std::iter::once(head).chain(rows) {
            let mut line = format!("{:INDENT$}{workload:<name$}", "");
            for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                let _ = write!(line, "  {cell:>width$}");
                if column == 0 {
                    line.push_str(&bar);
                }
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        if !others.is_empty() {
            let share = format::share(others.iter().map(|workload| workload.share).sum());
            let line = format!("and {} more with {share}: see --json", format::count(others.len() as u64));
            self.indented(&mut text, Highlight::Note, &line);
        }
        if shown.iter().any(|workload| workload.cgroup == ROOT) {
            self.indented(&mut text, Highlight::Note, ABOUT_ROOT);
        }
        let ios = workloads.iter().fold(0_u64, |ios, workload| ios.saturating_add(workload.all.ios()));
        let depth: f64 = workloads.iter().map(|workload| workload.seconds).sum();
        let line = format!(
            "{} I/O in {}, {}/s, mean depth {}, percentiles (total latency) {}",
            format::count(ios),
            format::duration(window.seconds),
            format::rate(window.rate(ios)),
            format::short_number(window.rate(1) * depth),
            self.numbers.error(ERROR_PERCENT)
        );
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&line, self.width, INDENT));
        text
    }

    fn who_cells(&self, workload: &WorkloadWindow, window: &Window) -> [String; TITLES.len()] {
        let figures = &workload.all;
        let at = |share| {
            figures.total.percentile(share).map(|bounds| self.numbers.bounds(bounds)).unwrap_or_default()
        };
        let errors = if figures.errors > 0 { format::count(figures.errors) } else { String::new() };
        [
            format::share(workload.share),
            format::rate(window.rate(figures.ios())),
            format::short_number(window.rate(1) * figures.bytes as f64 / 1e6),
            format::short_number(window.rate(1) * workload.seconds),
            at(0.5),
            at(0.99),
            errors,
        ]
    }
}
