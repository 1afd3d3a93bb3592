//! Which parts of a window are shown, and how.

use anyhow::Result;
use biolat_common::series::Phase;
use biolat_system::{
    log_lines,
    terminal::{Highlight, Terminal, wrapped},
};

use crate::{
    breakdown::Breakdown,
    findings,
    options::{By, CommonOptions, HistogramOptions},
    output::write,
    text::TextStyle,
    window::Window,
};

/// Which parts of windows are shown, and how.
pub(super) struct View {
    pub(super) breakdown: Breakdown,
    pub(super) style: TextStyle,
    pub(super) json: bool,
    /// Whether each window starts with its end time.
    pub(super) timestamp: bool,
}

/// Tables that replace the histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Sizes,
    Cpus,
    Who,
}

impl View {
    /// Shows histograms.
    pub(super) fn of_histograms(options: &HistogramOptions, common: &CommonOptions) -> Self {
        let phases = match (options.phases, options.queued) {
            (true, _) => Phase::ALL.to_vec(),
            (false, true) => vec![Phase::Total],
            (false, false) => vec![Phase::Device],
        };
        let breakdown = Breakdown {
            by: if options.by_device { Some(By::Device) } else { options.by },
            by_op: options.by_op,
            phases,
            ..Breakdown::default()
        };
        Self::new(breakdown, options.milliseconds, options.fine, common)
    }

    /// Shows a table per device.
    pub(super) fn of_table(table: Table, milliseconds: bool, common: &CommonOptions) -> Self {
        let breakdown = Breakdown {
            phases: vec![Phase::Device],
            sizes: table == Table::Sizes,
            cpus: (table == Table::Cpus).then(Default::default),
            who: table == Table::Who,
            ..Breakdown::default()
        };
        Self::new(breakdown, milliseconds, false, common)
    }

    fn new(breakdown: Breakdown, milliseconds: bool, fine: bool, common: &CommonOptions) -> Self {
        let terminal = Terminal::of_stdout(common.color);
        let numbers = terminal.numbers(milliseconds);
        let style = TextStyle { terminal, width: terminal.width(), numbers, fine };
        Self { breakdown, style, json: common.json, timestamp: false }
    }

    #[must_use]
    pub(super) fn with_timestamp(self, timestamp: bool) -> Self {
        Self { timestamp, ..self }
    }

    /// Wraps a line to the width of the terminal, and indents the continuation lines.
    pub(super) fn wrapped(&self, line: &str, indent: usize) -> String {
        wrapped(line, self.style.width, indent)
    }

    /// A heading, preceded by an empty line.
    pub(super) fn heading(&self, title: &str) -> String {
        format!("\n{}\n", self.style.terminal.paint(Highlight::Strong, title))
    }

    /// The findings in a window, below a heading.
    pub(super) fn findings(&self, title: &str, window: &Window) -> String {
        let findings = findings::findings(window, self.style.numbers);
        let lines = findings.iter().map(|finding| format!("- {}\n", self.wrapped(finding, 2)));
        self.heading(title) + &lines.collect::<String>()
    }

    /// Writes lines that introduce the output: to standard error if standard output is JSON.
    pub(super) async fn introduce(&self, lines: &[String]) -> Result<()> {
        let text: String = lines.iter().map(|line| format!("{}\n", self.wrapped(line, 0))).collect();
        if self.json {
            log_lines::write_text(&text);
            return Ok(());
        }
        write(text).await
    }
}
