//! How many scrapes there were: all that the server tells the collector, which keeps the series of what has ended for one more.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The number of scrapes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Scrapes(Arc<AtomicU64>);

impl Scrapes {
    /// Counts a scrape.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Scrapes so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
