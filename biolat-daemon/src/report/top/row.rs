//! One row of the table.

use crate::report::window::Figures;

/// The op of a row of all ops.
pub(super) const ALL: &str = "all";

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopRow {
    pub(super) device: String,
    pub(super) model: String,
    pub(super) op: String,
    /// The length of the window.
    pub(super) seconds: f64,
    pub(super) figures: Figures,
    /// If the phase that is shown is not recorded: why, and the command that enables it.
    pub(super) hint: Option<String>,
}

impl TopRow {
    pub(super) fn ios(&self) -> f64 {
        self.rate(self.figures.ios())
    }

    pub(super) fn bytes(&self) -> f64 {
        self.rate(self.figures.bytes)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.figures.ios() == 0 && self.figures.failed() == 0
    }

    fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}
