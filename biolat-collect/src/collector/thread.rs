//! Runs the collector's thread: one collection per interval, and commands in between.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use anyhow::Result;
use biolat_common::bucket::{CELLS, LIMIT_NS, cell};
use biolat_model::{
    histogram::Histogram,
    snapshot::{LongWait, Snapshot},
};
use tokio::sync::watch;

use super::{
    Collector,
    state::{
        record::CollectionsRecord,
        sparse::{compress, expand},
    },
};
use crate::device::diskstats::DiskStats;

/// Commands to the collector between collections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectorCommand {
    /// Scan the devices, because a disk appeared or disappeared.
    Rescan,
    /// Collect one last time and stop.
    Stop,
}

/// Minimum time between two log lines about the same problem.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum time between two scans triggered by uevents.
const RESCAN_INTERVAL: Duration = Duration::from_millis(100);

/// Time that a collection waits for runs of the probe before commands and slow records are handled.
const REST_TIMEOUT: Duration = Duration::from_millis(100);

/// Interval at which slots of ended series are checked for release.
const RELEASE_INTERVAL: Duration = Duration::from_millis(20);

/// Interval at which the slow I/O records are read.
const SLOW_RECORDS_INTERVAL: Duration = Duration::from_secs(1);

/// Statistics of the collections so far.
pub(super) struct CollectionStats {
    durations: [u64; CELLS],
    sum_ns: u128,
    pub(super) last_success: Option<Instant>,
    pub(super) wait: LongWait,
    pub(super) failures: u64,
    pub(super) overruns: u64,
    failure_log: LogLimit,
    overrun_log: LogLimit,
}

/// Limits the rate of a log line, because a problem usually recurs in every collection. Each problem has its own limit, so none
/// hides another.
#[derive(Default)]
pub(super) struct LogLimit(Option<Instant>);

impl LogLimit {
    pub(super) fn allows(&mut self) -> bool {
        let allowed = self.0.is_none_or(|last| last.elapsed() >= LOG_INTERVAL);
        if allowed {
            self.0 = Some(Instant::now());
        }
        allowed
    }
}

impl Default for CollectionStats {
    fn default() -> Self {
        Self {
            durations: [0; CELLS],
            sum_ns: 0,
            last_success: None,
            wait: LongWait::None,
            failures: 0,
            overruns: 0,
            failure_log: LogLimit::default(),
            overrun_log: LogLimit::default(),
        }
    }
}

impl CollectionStats {
    fn record(&mut self, duration: Duration, interval: Duration) {
        let ns = duration.as_nanos();
        self.durations[cell(u64::try_from(ns).unwrap_or(u64::MAX).min(LIMIT_NS - 1))] += 1;
        self.sum_ns += ns;
        if duration > interval {
            self.overruns += 1;
            if self.overrun_log.allows() {
                log::warn!(
                    "a collection took {duration:.1?}, longer than the interval of {interval:?}: raise --interval"
                );
            }
        }
    }

    /// Returns the record of the statistics for the next daemon.
    pub(super) fn to_record(&self) -> CollectionsRecord {
        CollectionsRecord {
            durations: compress(&self.durations),
            sum_ns: u64::try_from(self.sum_ns).unwrap_or(u64::MAX),
            failures: self.failures,
            overruns: self.overruns,
        }
    }

    /// Restores the statistics; `None` if the record is invalid.
    pub(super) fn from_record(record: &CollectionsRecord) -> Option<Self> {
        let (sum_ns, failures, overruns) = (record.sum_ns.into(), record.failures, record.overruns);
        let mut stats = Self { sum_ns, failures, overruns, ..Self::default() };
        expand(&record.durations, &mut stats.durations)?;
        Some(stats)
    }

    pub(super) fn histogram(&self) -> Histogram {
        Histogram::from_cells(self.durations, self.sum_ns)
    }
}

/// Collects until a command stops it or its handle is dropped. If a collection fails, the last snapshot stays.
pub(super) fn run(
    mut collector: Collector,
    interval: Duration,
    commands: &Receiver<CollectorCommand>,
    snapshots: &watch::Sender<Option<Arc<Snapshot>>>,
) {
    collector.interval = interval;
    let mut timers = Timers::now();
    let mut begun = None;
    loop {
        if begun.is_none() && Instant::now() >= timers.collection {
            begun = Some(collector.begin_timed_collection());
            timers.begin_collection(&collector);
        }
        let is_at_rest = begun.is_some() && collector.workloads_are_at_rest(REST_TIMEOUT);
        collector.publish_long_wait(begun.is_some() && !is_at_rest, snapshots);
        if let Some(collection) = begun.take_if(|_| is_at_rest) {
            collector.finish_and_publish(collection, interval, snapshots);
            // A collection that took too long delays the next one. Missed collections are not made up for.
            timers.collection = (timers.collection + interval).max(Instant::now());
            timers.release = collector.next_release();
        }
        collector.probe.maps.grace_periods.log_long_wait();
        collector.run_due_timers(&mut timers);
        // While a collection waits for runs of the probe, `workloads_are_at_rest` does the waiting.
        let wait = if begun.is_some() { Duration::ZERO } else { timers.wait() };
        match commands.recv_timeout(wait) {
            Ok(CollectorCommand::Rescan) => {
                timers.rescan.get_or_insert(timers.earliest_rescan);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(CollectorCommand::Stop) | Err(RecvTimeoutError::Disconnected) => {
                if let Some(collection) = begun {
                    collector.finish_and_publish(collection, interval, snapshots);
                }
                let last = collector.begin_timed_collection();
                collector.finish_and_publish(last, interval, snapshots);
                return;
            }
        }
    }
}

/// Times at which the thread has something to do.
struct Timers {
    collection: Instant,
    slow_records: Option<Instant>,
    rescan: Option<Instant>,
    earliest_rescan: Instant,
    /// Time to check for slots that can be released.
    release: Option<Instant>,
}

impl Timers {
    fn now() -> Self {
        let now = Instant::now();
        Self { collection: now, slow_records: None, rescan: None, earliest_rescan: now, release: None }
    }

    /// Resets the timers at the start of a collection, which reads the slow I/O records and ends by releasing slots.
    fn begin_collection(&mut self, collector: &Collector) {
        self.slow_records = collector.records_slow_ios().then(|| Instant::now() + SLOW_RECORDS_INTERVAL);
        self.release = None;
    }

    /// Returns the time until something is due.
    fn wait(&self) -> Duration {
        let timers = [self.slow_records, self.rescan, self.release].into_iter().flatten();
        timers.fold(self.collection, Instant::min).saturating_duration_since(Instant::now())
    }
}

/// Takes a timer if it is due, and returns whether it was.
fn take_due(timer: &mut Option<Instant>) -> bool {
    timer.take_if(|due| Instant::now() >= *due).is_some()
}

/// A collection in progress.
struct OngoingCollection {
    at: Instant,
    /// Total time spent waiting for runs of the probe before it began.
    waited: Duration,
    diskstats: Result<BTreeMap<u64, DiskStats>>,
}

impl Collector {
    fn begin_timed_collection(&mut self) -> OngoingCollection {
        let (at, waited) = (Instant::now(), self.probe.maps.grace_periods.waited());
        OngoingCollection { at, waited, diskstats: self.begin_collection() }
    }

    /// Does everything that is due apart from collections.
    fn run_due_timers(&mut self, timers: &mut Timers) {
        if take_due(&mut timers.slow_records) {
            if self.read_slow_records() {
                self.commit();
            }
            timers.slow_records = Some(Instant::now() + SLOW_RECORDS_INTERVAL);
        }
        if take_due(&mut timers.rescan) {
            if let Err(error) = self.rescan() {
                log::error!("{error:#}");
            }
            timers.earliest_rescan = Instant::now() + RESCAN_INTERVAL;
            timers.release = self.next_release();
        }
        if take_due(&mut timers.release) {
            // An error here recurs in the next collection, which logs it.
            timers.release = self.end_quarantine().ok().and_then(|()| self.next_release());
        }
    }

    /// Returns when to check again for slots that can be released.
    fn next_release(&self) -> Option<Instant> {
        (self.store.quarantined() > 0).then(|| Instant::now() + RELEASE_INTERVAL)
    }

    fn finish_and_publish(
        &mut self,
        begun: OngoingCollection,
        interval: Duration,
        snapshots: &watch::Sender<Option<Arc<Snapshot>>>,
    ) {
        let result = begun.diskstats.and_then(|diskstats| self.finish_collection(&diskstats));
        // The state includes the durations of all published collections. The time taken to write it counts towards the next
        // collection.
        let kept = self.keep.as_ref().map(|keep| keep.write_time()).unwrap_or_default();
        // A long wait for runs of the probe is logged separately; a longer interval would not prevent it.
        let waited = self.probe.maps.grace_periods.waited() - begun.waited;
        self.stats.record(begun.at.elapsed().saturating_sub(waited) + kept, interval);
        match result {
            Ok(mut snapshot) => {
                self.stats.last_success = Some(Instant::now());
                snapshot.health = self.health();
                // Written before the snapshot is visible, so the next daemon never shows lower counts.
                self.commit();
                snapshots.send_replace(Some(Arc::new(snapshot)));
            }
            Err(error) => {
                self.stats.failures += 1;
                if self.stats.failure_log.allows() {
                    log::error!("a collection failed, keeping the previous snapshot: {error:#}");
                }
                self.commit();
                self.publish_health(snapshots);
            }
        }
    }

    /// Publishes that a collection's wait for runs of the probe has become long, or that a long wait has ended.
    fn publish_long_wait(&mut self, is_waiting: bool, snapshots: &watch::Sender<Option<Arc<Snapshot>>>) {
        let is_long = is_waiting && self.probe.maps.grace_periods.is_long();
        let was_long = self.stats.wait == LongWait::InProgress;
        if is_long != was_long {
            self.stats.wait = if is_long { LongWait::InProgress } else { LongWait::Ended(Instant::now()) };
            self.publish_health(snapshots);
        }
    }

    /// Publishes the last snapshot again, with the current statistics of the collector.
    fn publish_health(&self, snapshots: &watch::Sender<Option<Arc<Snapshot>>>) {
        snapshots.send_if_modified(|last| {
            let Some(snapshot) = last else { return false };
            *last = Some(Arc::new(Snapshot { health: self.health(), ..Snapshot::clone(snapshot) }));
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::CollectionStats;

    #[test]
    fn overrun_does_not_hide_failure() {
        let mut stats = CollectionStats::default();
        stats.record(Duration::from_secs(2), Duration::from_secs(1));
        assert!(!stats.overrun_log.allows(), "a second overrun within a minute");
        assert!(stats.failure_log.allows() && !stats.failure_log.allows());
    }
}
