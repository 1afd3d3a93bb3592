//! The HTTP server. It never reads a map: every response is made from the latest snapshot. `routes` has the table of
//! endpoints, `authentication` what applies to all of them.

mod admission;
mod authentication;
mod bodies;
mod conditional;
mod connection_slots;
mod connections;
mod events;
mod history;
mod limits;
pub mod negotiate;
mod page;
mod responses;
mod routes;
mod tracked_stream;

use std::{sync::Arc, time::Duration};

use biolat_collect::scrapes::Scrapes;
use biolat_history::SharedHistory;
use biolat_model::{interval, snapshot::Snapshot};
use tokio::sync::{Semaphore, watch};

use crate::{expose::HistogramFormat, web_config::WebConfig};
use bodies::BodyCache;
use page::DayTable;

pub use connections::serve;
pub use limits::Limits;

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
        }
    }
}

/// Responds to requests. Clones share the cached bodies.
#[derive(Clone)]
pub struct Service {
    bodies: Arc<BodyCache>,
    scrapes: Scrapes,
    live: bool,
    history: Option<SharedHistory>,
    history_readers: Arc<Semaphore>,
    /// Its permit is for reading a part of the history: a scrape never waits for one.
    history_encoder: Arc<Semaphore>,
    day_table: Option<Arc<DayTable>>,
    web_config: Option<Arc<WebConfig>>,
}

impl Service {
    /// Serves the latest of these snapshots.
    #[must_use]
    pub fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        let live = config.live;
        Self {
            bodies: Arc::new(BodyCache::new(snapshots, config)),
            scrapes: Scrapes::default(),
            live,
            history: None,
            history_readers: Arc::new(Semaphore::new(history::READERS)),
            history_encoder: Arc::new(Semaphore::new(1)),
            day_table: None,
            web_config: None,
        }
    }

    /// Serves what came in each interval, too.
    #[must_use]
    pub fn with_history(self, history: SharedHistory) -> Self {
        let day_table = Some(Arc::new(DayTable::new(history.clone(), Arc::clone(&self.history_encoder))));
        Self { history: Some(history), day_table, ..self }
    }

    /// Counts scrapes here.
    #[must_use]
    pub(crate) fn counting(self, scrapes: Scrapes) -> Self {
        Self { scrapes, ..self }
    }
}
