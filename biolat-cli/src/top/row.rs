//! A row of the table.

use biolat_model::snapshot::Inflight;

use crate::window::Figures;

/// The op of a row for all ops.
pub(super) const ALL: &str = "all";

/// A row of the table.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TopRow {
    pub(super) device: String,
    pub(super) model: String,
    pub(super) op: String,
    /// Length of the window.
    pub(super) seconds: f64,
    pub(super) figures: Figures,
    /// I/Os of the drive in flight, of all ops; unknown for a volume.
    pub(super) inflight: Option<Inflight>,
    /// The finding that the device or one of its I/Os is hung, if any.
    pub(super) overdue: Option<String>,
    /// If the phase on the screen is not recorded, the reason and the command that enables it.
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
        self.figures.ios() == 0 && self.figures.failed() == 0 && !self.is_hung()
    }

    /// Whether the device is hung.
    pub(super) fn is_hung(&self) -> bool {
        self.inflight.is_some_and(|inflight| inflight.is_hung())
    }

    /// Age of the device's oldest I/O in flight, if any.
    pub(super) fn oldest(&self) -> Option<f64> {
        self.inflight.map(|inflight| inflight.oldest.as_secs_f64()).filter(|age| *age > 0.0)
    }

    fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}
