//! How a server responds, and whether it serves a saved history.

use std::time::{Duration, SystemTime};

use biolat_model::{api::ApiHistory, interval};

use crate::expose::HistogramFormat;

/// How snapshots are served.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// How `/metrics` encodes histograms.
    pub histograms: HistogramFormat,
    /// The host's name.
    pub host: String,
    /// Time between collections.
    pub interval: Duration,
    /// From how long on an I/O is slow; none: no I/O is recorded.
    pub slow: Option<Duration>,
    /// Whether `/metrics` has completions by CPU.
    pub per_cpu: bool,
    /// Whether OpenMetrics has `_created` lines.
    pub created: bool,
    /// Whether the page has its script, and there is an event stream.
    pub live: bool,
    /// The file that is served in place of what a collector counts.
    pub saved: Option<SavedHistory>,
}

/// A saved history: there is no collector, and now is when it was saved.
#[derive(Clone, Debug)]
pub struct SavedHistory {
    /// When it was saved.
    pub saved: SystemTime,
    /// The head of each answer about it.
    pub head: ApiHistory,
    /// The begin of its first interval, and the end of its last.
    pub range: [SystemTime; 2],
}

/// The defaults of the command line.
impl Default for ServeConfig {
    fn default() -> Self {
        Self {
            histograms: HistogramFormat::default(),
            host: String::new(),
            interval: Duration::from_secs(5),
            slow: Some(interval::SLOW),
            per_cpu: false,
            created: false,
            live: true,
            saved: None,
        }
    }
}
