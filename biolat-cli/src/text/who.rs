//! Who does the I/O: a table for each device, with a row for each workload.

use std::fmt::Write as _;

use biolat_common::series::Phase;
use biolat_model::text::format;
use biolat_system::terminal::{Highlight, wrapped};

use super::{
    INDENT, TextStyle, full_device_name,
    ranking::{MAX_ROWS, RankedRow},
    sizes::ERROR_PERCENT,
};
use crate::{
    window::{DeviceWindow, Window},
    workloads::{ROOT, WorkloadWindow},
};

/// Explains the root cgroup below a table that contains it.
const ABOUT_ROOT: &str = "root cgroup: the kernel's own I/O (journal, metadata, flushes), and I/O of processes in it and in \
                          cgroups without the io controller (see biolat check)";

/// Titles of the numbers. The last one is only shown if there are errors.
pub(super) const TITLES: [&str; 7] = ["share", "IOPS", "MB/s", "depth", "p50", "p99", "errors"];

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
        let rows = shown.iter().map(|workload| RankedRow {
            name: workload.name.clone(),
            share: workload.share,
            cells: self.who_cells(workload, window),
        });
        self.ranking(&mut text, "workload", &TITLES[..columns], &rows.collect::<Vec<_>>());
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

    fn who_cells(&self, workload: &WorkloadWindow, window: &Window) -> Vec<String> {
        let figures = &workload.all;
        let at = |share| {
            figures.total.percentile(share).map(|bounds| self.numbers.bounds(bounds)).unwrap_or_default()
        };
        let errors = if figures.errors > 0 { format::count(figures.errors) } else { String::new() };
        vec![
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
