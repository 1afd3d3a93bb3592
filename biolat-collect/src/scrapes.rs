//! Counts scrapes for the collector, which keeps showing gone workloads until one more scrape. The server tells the collector
//! nothing else.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Number of scrapes, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Scrapes(Arc<AtomicU64>);

impl Scrapes {
    /// Counts a scrape.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of scrapes so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
