//! A window as text: for each block a histogram, percentiles, the load, and notes on missing data.

mod cpus;
mod processes;
mod ranking;
mod rows;
mod sizes;
#[cfg(test)]
mod tables_tests;
#[cfg(test)]
mod tests;
mod who;
#[cfg(test)]
mod who_tests;

use std::{array, fmt::Write as _};

use biolat_common::series::Phase;
use biolat_model::{
    histogram::{ERROR_PERCENT, Histogram},
    losses,
    text::format::{self, NumberFormat},
};
use biolat_system::terminal::{Highlight, Terminal, wrapped};

use super::{
    breakdown::{Block, Breakdown},
    claims::Claim,
    findings::{inflight, missing_admission, overdue},
    window::{DeviceWindow, Window},
};

/// The percentiles to show.
const SHARES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

/// Indent of everything but titles.
const INDENT: usize = 2;

/// Widths of a table's columns, in characters: each is as wide as its widest cell.
pub(super) fn widths<'a, const N: usize>(rows: impl Iterator<Item = &'a [String; N]>) -> [usize; N] {
    rows.fold([0; N], |widths, row| array::from_fn(|column| widths[column].max(row[column].chars().count())))
}

/// How a window is formatted.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextStyle {
    pub(super) terminal: Terminal,
    /// Width of the terminal.
    pub(super) width: usize,
    pub(super) numbers: NumberFormat,
    /// Whether to show a row per bucket instead of one per power of two.
    pub(super) fine: bool,
}

/// Formats a window.
pub(super) fn window(window: &Window, breakdown: &Breakdown, style: &TextStyle) -> String {
    let mut text = String::new();
    if window.restarted {
        style.note(&mut text, Highlight::Note, "biolat was restarted: only I/O since then is shown");
    }
    for overdue in window.devices.iter().filter_map(|device| overdue(device, window.seconds)) {
        style.note(&mut text, Highlight::Bad, &overdue);
    }
    if breakdown.has_tables() {
        style.tables(&mut text, window, breakdown);
    } else {
        style.blocks(&mut text, window, breakdown);
    }
    for (reason, count) in &window.lost {
        let line =
            format!("in no histogram: {} {reason} ({})", format::count(*count), losses::meaning(reason));
        style.note(&mut text, Highlight::Note, &line);
    }
    if window.failures > 0 {
        let collections = if window.failures == 1 { "collection" } else { "collections" };
        let line = format!("{} {collections} failed: that I/O is counted in a later window", window.failures);
        style.note(&mut text, Highlight::Note, &line);
    }
    text
}

impl TextStyle {
    fn blocks(&self, text: &mut String, window: &Window, breakdown: &Breakdown) {
        if let Some(missing) = breakdown.missing(window) {
            return self.note(text, Highlight::Note, missing);
        }
        let blocks = breakdown.blocks(window);
        if blocks.iter().all(|block| !block.is_busy()) {
            let is_idle = window.devices.iter().all(|device| device.inflight.is_none());
            let completed = if is_idle { "" } else { " completed" };
            let _ = writeln!(text, "no I/O{completed} in {}", format::duration(window.seconds));
        }
        for (number, block) in blocks.iter().filter(|block| block.is_busy()).enumerate() {
            if number > 0 {
                text.push('\n');
            }
            self.block(text, block, window, breakdown);
        }
        let is_shown = |phase| breakdown.phases.contains(&phase);
        if (is_shown(Phase::Admission) || is_shown(Phase::Total))
            && let Some(missing) = missing_admission(&window.devices)
        {
            self.note(text, Highlight::Note, &missing);
        }
    }

    fn block(&self, text: &mut String, block: &Block<'_>, window: &Window, breakdown: &Breakdown) {
        let figures = &block.figures;
        // If the phase is not recorded, show the total instead.
        let has_latencies = |phase: &Phase| figures.of(*phase).count() > 0;
        let mut phases: Vec<_> = breakdown.phases.iter().copied().filter(has_latencies).collect();
        if phases.is_empty() {
            phases.push(Phase::Total);
        }
        let names: Vec<_> = phases.iter().map(|phase| phase.name()).collect();
        let indent = "  ".repeat(block.depth as usize);
        self.title(text, &format!("{indent}{}: {} latency", full_name(block), names.join(" | ")));
        if figures.ios() > 0 {
            self.rows(text, figures, &phases);
            let longest = phases.iter().map(|phase| phase.name().len()).max().unwrap_or_default();
            for &phase in &phases {
                let label =
                    if phases.len() > 1 { format!("{:<longest$}  ", phase.name()) } else { String::new() };
                self.percentiles(text, &label, figures.of(phase));
            }
        }
        self.load(text, block, window, &phases);
        if let Some(inflight) = block.inflight.and_then(inflight) {
            self.indented(text, Highlight::Strong, &inflight);
        }
        self.faults(text, block);
        if let Some(note) = block.claim.as_ref().and_then(Claim::note) {
            self.indented(text, Highlight::Note, &note);
        }
        self.missing_latency(text, block, window, breakdown);
    }

    /// Adds the tables of the breakdown: by workload, by size, by CPU.
    fn tables(&self, text: &mut String, window: &Window, breakdown: &Breakdown) {
        let missing = breakdown.missing(window);
        if let Some(missing) = missing {
            self.note(text, Highlight::Note, missing);
        }
        let mut tables = Vec::new();
        if breakdown.who {
            tables.extend(self.who_tables(window));
        }
        if breakdown.sizes {
            tables.extend(self.size_tables(window));
        }
        if let Some(nodes) = &breakdown.cpus {
            tables.extend(self.cpu_tables(window, nodes));
        }
        if tables.is_empty() && missing.is_none() {
            let what = if breakdown.cpus.is_some() || breakdown.who { "I/O" } else { "read or write" };
            let _ = writeln!(text, "no {what} completed in {}", format::duration(window.seconds));
        }
        text.push_str(&tables.join("\n"));
    }

    fn percentiles(&self, text: &mut String, label: &str, histogram: &Histogram) {
        let percentiles = SHARES.iter().filter_map(|(name, share)| {
            let bounds = histogram.percentile(*share)?;
            Some(format!("{name} {}", self.numbers.bounds(bounds)))
        });
        let line = format!("{label}{}", percentiles.collect::<Vec<_>>().join("  "));
        let _ = writeln!(text, "{:INDENT$}{line}", "");
    }

    /// I/Os, rates and the mean.
    fn load(&self, text: &mut String, block: &Block<'_>, window: &Window, phases: &[Phase]) {
        let (ios, bytes) = (block.figures.ios(), block.figures.bytes);
        let mut parts = vec![
            format!("{} I/O in {}", format::count(ios), format::duration(window.seconds)),
            format!("{}/s", format::rate(window.rate(ios))),
        ];
        if bytes > 0 {
            parts.push(format!("{}/s", format::bytes(window.rate(1) * bytes as f64)));
        }
        if let &[phase] = phases
            && let Some(mean) = block.figures.of(phase).mean()
        {
            parts.push(format!("mean {}", self.numbers.latency(mean)));
        }
        if ios > 0 {
            parts.push(format!("percentiles {}", self.numbers.error(ERROR_PERCENT)));
        }
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&parts.join(", "), self.width, INDENT));
    }

    /// Errors, and missed completions.
    fn faults(&self, text: &mut String, block: &Block<'_>) {
        fn list<'a>(counts: impl Iterator<Item = (&'a str, &'a u64)>) -> String {
            counts
                .map(|(name, count)| format!("{} {name}", format::count(*count)))
                .collect::<Vec<_>>()
                .join(", ")
        }
        if !block.figures.errors.is_empty() {
            let line = format!(
                "errors: {}",
                list(block.figures.errors.iter().map(|(status, count)| (&**status, count)))
            );
            self.indented(text, Highlight::Bad, &line);
        }
        if !block.unseen.is_empty() {
            let line = format!(
                "missed: {} (completed according to diskstats, but the kernel did not run the probe)",
                list(block.unseen.iter().map(|(group, count)| (group.name(), count)))
            );
            self.indented(text, Highlight::Note, &line);
        }
    }

    /// Why queue and device latency are missing, if they were requested.
    fn missing_latency(&self, text: &mut String, block: &Block<'_>, window: &Window, breakdown: &Breakdown) {
        // A volume has no other latency.
        let is_total_alone = breakdown.phases.iter().all(|phase| *phase == Phase::Total)
            || block.devices(window).iter().all(|device| device.volume.is_some());
        let with_device_latency = block.figures.of(Phase::Device).count();
        let without = block.figures.ios().saturating_sub(with_device_latency);
        if is_total_alone || without == 0 {
            return;
        }
        let is_busy = |device: &&DeviceWindow| device.all().ios() > 0 && !device.hint.is_empty();
        let mut hints =
            block.devices(window).into_iter().filter(is_busy).map(|device| &device.hint).peekable();
        if hints.peek().is_none() {
            let have = if without == 1 { "I/O has" } else { "I/Os have" };
            let line = format!(
                "{} {have} only a total latency: empty flushes are not dispatched to the driver (see -Q)",
                format::count(without)
            );
            self.indented(text, Highlight::Note, &line);
        }
        for hint in hints {
            self.indented(text, Highlight::Note, hint);
        }
    }

    fn title(&self, text: &mut String, title: &str) {
        let title: String = title.chars().take(self.width).collect();
        let _ = writeln!(text, "{}", self.terminal.paint(Highlight::Strong, &title));
    }

    fn indented(&self, text: &mut String, highlight: Highlight, line: &str) {
        for line in wrapped(line, self.width, INDENT).lines() {
            let _ = writeln!(text, "{:INDENT$}{}", "", self.terminal.paint(highlight, line.trim_start()));
        }
    }

    fn note(&self, text: &mut String, highlight: Highlight, line: &str) {
        for line in wrapped(line, self.width, 0).lines() {
            let _ = writeln!(text, "{}", self.terminal.paint(highlight, line));
        }
    }
}

/// The block's name, with the model if it is for one device, and the devices if it is for a claim.
fn full_name(block: &Block<'_>) -> String {
    match (block.device, &block.claim) {
        (Some(device), _) => {
            let op = block.op.map(|op| format!(" {op}")).unwrap_or_default();
            full_device_name(device) + &op
        }
        (None, Some(claim)) => {
            let devices = claim.devices.iter().map(|device| full_device_name(device));
            format!("{} on {}", block.name(), devices.collect::<Vec<_>>().join(" and "))
        }
        (None, None) => block.name(),
    }
}

fn full_device_name(device: &DeviceWindow) -> String {
    if device.model.is_empty() { device.name.clone() } else { format!("{} ({})", device.name, device.model) }
}
