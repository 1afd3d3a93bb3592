//! The store of the collector's thread, which others read.

use std::{
    sync::{Arc, Mutex, PoisonError, TryLockError},
    time::{Duration, SystemTime},
};

use super::{HistoryLimits, KeptFrom, Selection, Store};
use crate::snapshot::Snapshot;

/// A store that one thread fills and others read. Clones share it.
#[derive(Clone)]
pub struct SharedHistory(Arc<Mutex<Store>>);

impl SharedHistory {
    /// Without any interval, at this time by a clock that is never set.
    #[must_use]
    pub fn new(limits: HistoryLimits, now: Duration) -> Self {
        Self(Arc::new(Mutex::new(Store::new(limits, now))))
    }

    /// Adds an interval, see [`Store::record`]. Never waits: in the microseconds that someone selects intervals, none is added,
    /// and the next one has what came in both.
    pub fn record(&self, snapshot: &Arc<Snapshot>, at: Duration) {
        match self.0.try_lock() {
            Ok(mut store) => store.record(snapshot, at),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner().record(snapshot, at),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// The intervals in a range, see [`Store::select`], and from when on there are any.
    #[must_use]
    pub fn select(&self, from: SystemTime, to: SystemTime) -> (Selection, Option<KeptFrom>) {
        let store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (store.select(from, to), store.kept_from())
    }

    /// Memory of all intervals.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::SharedHistory;
    use crate::history::{
        HistoryLimits,
        tests::host::{TestHost, at, sums},
    };

    #[test]
    fn a_reader_does_not_delay_the_collector() {
        let mut host = TestHost::new(&["sda"]);
        let limits = HistoryLimits { age: Duration::MAX, bytes: usize::MAX };
        let history = SharedHistory::new(limits, host.boot);
        host.wait(5.0).io("sda", "read", 3, 0.001);
        history.record(&Arc::new(host.snapshot.clone()), host.boot);
        host.wait(5.0).io("sda", "read", 4, 0.001);
        let reader = history.0.lock().unwrap();
        history.record(&Arc::new(host.snapshot.clone()), host.boot);
        drop(reader);
        host.wait(5.0).io("sda", "read", 5, 0.001);
        history.record(&Arc::new(host.snapshot.clone()), host.boot);
        let (selection, _) = history.select(at(0.0), at(4e9));
        let periods: Vec<_> = selection.into_periods(None).collect();
        assert_eq!(periods.iter().map(|period| period.length.as_secs()).collect::<Vec<_>>(), [5, 10]);
        assert_eq!(sums(periods.into_iter()).into_values().next().unwrap().0, 12 * 4096);
    }
}
