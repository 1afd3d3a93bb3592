//! The HTTP server. It never reads a map: responses are built from the latest snapshot and the history. `routes` has the table of
//! endpoints; `authentication` does the work that is common to all of them.

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
mod serve_config;
mod tracked_stream;

use std::sync::Arc;

use biolat_collect::scrapes::Scrapes;
use biolat_history::SharedHistory;
use biolat_model::snapshot::Snapshot;
use tokio::sync::{Semaphore, watch};

use crate::web_config::WebConfig;
use bodies::BodyCache;
use page::DayTable;

pub use connections::serve;
pub use limits::Limits;
pub use serve_config::{SavedHistory, ServeConfig};

/// Responds to requests. Clones share the cached bodies.
#[derive(Clone)]
pub struct Service {
    bodies: Arc<BodyCache>,
    scrapes: Scrapes,
    history: Option<SharedHistory>,
    history_readers: Arc<Semaphore>,
    /// Allows one encoding of history at a time. Separate from the snapshot's encoder, so that no scrape waits for history.
    history_encoder: Arc<Semaphore>,
    day_table: Option<Arc<DayTable>>,
    web_config: Option<Arc<WebConfig>>,
}

impl Service {
    /// Creates a service for the latest snapshot.
    #[must_use]
    pub fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        Self {
            bodies: Arc::new(BodyCache::new(snapshots, config)),
            scrapes: Scrapes::default(),
            history: None,
            history_readers: Arc::new(Semaphore::new(history::READERS)),
            history_encoder: Arc::new(Semaphore::new(1)),
            day_table: None,
            web_config: None,
        }
    }

    /// Also serves this history.
    #[must_use]
    pub fn with_history(self, history: SharedHistory) -> Self {
        let range = self.bodies.config().saved.as_ref().map(|saved| saved.range);
        let day_table = DayTable::new(history.clone(), range, Arc::clone(&self.history_encoder));
        Self { history: Some(history), day_table: Some(Arc::new(day_table)), ..self }
    }

    /// Counts scrapes in `scrapes`.
    #[must_use]
    pub(crate) fn counting(self, scrapes: Scrapes) -> Self {
        Self { scrapes, ..self }
    }
}
