//! What is shown of a window, and how.

use biolat_common::series::Phase;
use biolat_system::terminal::Terminal;

use crate::{
    breakdown::Breakdown,
    options::{CommonOptions, HistogramOptions},
    text::TextStyle,
};

/// What is shown of windows.
pub(super) struct View {
    pub(super) breakdown: Breakdown,
    pub(super) style: TextStyle,
    pub(super) json: bool,
    /// Whether each window begins with the time of its end.
    pub(super) timestamp: bool,
}

/// Tables in place of histograms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    Sizes,
    Cpus,
    Who,
}

impl View {
    /// Histograms.
    pub(super) fn of_histograms(options: &HistogramOptions, common: &CommonOptions) -> Self {
        let phases = match (options.phases, options.queued) {
            (true, _) => Phase::ALL.to_vec(),
            (false, true) => vec![Phase::Total],
            (false, false) => vec![Phase::Device],
        };
        let breakdown =
            Breakdown { by_device: options.by_device, by_op: options.by_op, phases, ..Breakdown::default() };
        Self::new(breakdown, options.milliseconds, options.fine, common)
    }

    /// A table of each device.
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
}
