//! A store that one thread fills and others read.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use biolat_model::{period::KeptFrom, snapshot::Snapshot};

use super::{
    HistoryLimits, Selection, Store,
    part::{Mark, Part, Restoring},
};

/// A store that one thread fills and others read. Clones share it.
#[derive(Clone)]
pub struct SharedHistory(Arc<Mutex<Store>>);

impl SharedHistory {
    /// Creates an empty store. `now` is from a clock that is never set.
    #[must_use]
    pub fn new(limits: HistoryLimits, now: Duration) -> Self {
        Self::of(Store::new(limits, now))
    }

    /// Shares an existing store.
    #[must_use]
    pub fn of(store: Store) -> Self {
        Self(Arc::new(Mutex::new(store)))
    }

    /// Adds an interval; see [`Store::record`].
    pub fn record(&self, snapshot: &Arc<Snapshot>, at: Duration) {
        self.store().record(snapshot, at);
    }

    /// Returns the intervals of a range (see [`Store::select`]) and the time from which intervals are kept.
    #[must_use]
    pub fn select(&self, from: SystemTime, to: SystemTime) -> (Selection, Option<KeptFrom>) {
        let store = self.store();
        (store.select(from, to), store.kept_from())
    }

    /// Memory of all intervals and their names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.store().bytes()
    }

    /// Limits of the store.
    pub(super) fn limits(&self) -> HistoryLimits {
        self.store().limits
    }

    /// Returns the part that still has to be written to a file; see [`Store::part`].
    pub(super) fn part(&self, written: Option<Mark>) -> Option<Part> {
        self.store().part(written)
    }

    /// Sets whether a file with earlier intervals may still be read; see [`Store::set_awaits_file`].
    pub(super) fn set_awaits_file(&self, awaits: bool) {
        self.store().set_awaits_file(awaits);
    }

    /// Continues the history of a previous daemon; see [`Store::take_over`].
    pub(super) fn take_over(&self, restoring: Restoring, since_boot: Duration, now: SystemTime) -> usize {
        self.store().take_over(restoring, since_boot, now)
    }

    fn store(&self) -> MutexGuard<'_, Store> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
