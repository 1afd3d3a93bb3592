//! Configuration of the HTTP server.

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
    /// I/Os that take at least this long are recorded; `None`: no I/O is recorded.
    pub slow: Option<Duration>,
    /// Whether `/metrics` has completions by CPU.
    pub per_cpu: bool,
    /// Whether OpenMetrics has `_created` lines.
    pub created: bool,
    /// Whether the page has its script and there is an event stream.
    pub live: bool,
    /// Saved history to serve instead of a collector's snapshots.
    pub saved: Option<SavedHistory>,
}

/// A saved history. There is no collector, and the time of the save takes the place of the current time.
#[derive(Clone, Debug)]
pub struct SavedHistory {
    /// Time of the save.
    pub saved: SystemTime,
    /// Head of each response.
    pub head: ApiHistory,
    /// Start of the first interval and end of the last.
    pub range: [SystemTime; 2],
}

/// Defaults of the command line.
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
