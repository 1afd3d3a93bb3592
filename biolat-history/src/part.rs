//! The part of the store that a file still lacks (everything, or the intervals since the last write), and how a store is restored
//! from the file.

use std::{
    slice,
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_model::snapshot::Snapshot;

use super::{
    HistoryLimits,
    block::{BlockSum, Counts, microseconds},
    delta::DeviceDelta,
    interval::Interval,
    names::{Names, NewNames, Used},
    selection::Selection,
    store::Store,
};

/// Number of intervals that are merged at a time.
const MERGED_AT_ONCE: usize = 64;

/// The latest interval in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Its run of intervals: within a run, each interval starts where the previous one ended.
    run: u64,
    ended: Duration,
}

/// The part of the store that a file does not have yet.
pub(super) struct Part {
    pub(super) intervals: Vec<Interval>,
    /// All names, written or not.
    pub(super) names: Names,
    /// The counters after the last interval, if everything is to be written.
    pub(super) totals: Option<Totals>,
    /// Number of the latest slow I/O in an interval.
    pub(super) slow_number: u64,
    pub(super) mark: Mark,
}

/// The values of all counters, from which a later daemon computes the next interval.
#[derive(Clone)]
pub(super) struct Totals {
    /// When the counters were zero.
    pub(super) started: SystemTime,
    /// Offset of the store's clock from the boot clock.
    pub(super) clock_shift: Duration,
    /// The counters, as an interval that began when they were zero.
    pub(super) block: Arc<[u8]>,
}

/// What a file and this daemon have in common.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OriginMatch {
    /// Whether the boot is the same, so the clock has continued.
    pub(super) boot: bool,
    /// Whether the device selection is the same, so the counters may have continued.
    pub(super) devices: bool,
}

impl Store {
    /// Returns what was recorded since `written`, or everything if that cannot be determined. `None` before the first snapshot.
    pub(super) fn part(&mut self, written: Option<Mark>) -> Option<Part> {
        let (snapshot, ended) = self.previous.clone()?;
        let mark = Mark { run: self.run, ended };
        let since = written.filter(|written| {
            let straddles =
                |interval: &Interval| interval.began < written.ended && interval.ended > written.ended;
            written.run == self.run && !self.intervals().any(straddles)
        });
        let totals = since.is_none().then(|| self.totals(&snapshot));
        let is_new = |interval: &&Interval| since.is_none_or(|written| interval.ended > written.ended);
        let intervals = self.intervals().filter(is_new).cloned().collect();
        let (names, slow_number) = (self.names.names.clone(), self.slow_number);
        Some(Part { intervals, names, totals, slow_number, mark })
    }

    /// Inserts a file's intervals before the ones recorded so far. Returns how many the file had. `since_boot` and `now` are the
    /// current time by the clock of [`Self::record`] and by the wall clock.
    pub(super) fn take_over(&mut self, file: Restoring, since_boot: Duration, now: SystemTime) -> usize {
        let mut store = file.end(self.opened, since_boot, now);
        let (restored, last) = (store.intervals().count(), store.intervals().last().map(|last| last.ended));
        if let Some((snapshot, at)) = self.first.take() {
            store.record(&snapshot, at);
        }
        // If another daemon was writing the file until now, both have intervals for the same time.
        let is_new = |interval: &&Interval| last.is_none_or(|last| interval.ended + store.clock_shift > last);
        let intervals: Vec<_> = self.intervals().filter(is_new).cloned().collect();
        let periods = Selection::new(intervals.clone(), self.names.names.clone(), 0).into_periods(None);
        for (interval, period) in intervals.iter().zip(periods) {
            store.add_renumbered(interval, period);
        }
        if let Some((snapshot, at)) = self.previous.take() {
            store.previous = Some((snapshot, at + store.clock_shift));
            store.slow_number = self.slow_number;
            store.restored = None;
        }
        *self = store;
        restored
    }

    fn totals(&mut self, snapshot: &Snapshot) -> Totals {
        self.take_counts(None, snapshot);
        self.writer.begin(&self.counts, None);
        self.write_devices(None, snapshot, None);
        let (block, _) = self.writer.end(&[]);
        Totals { started: snapshot.started, clock_shift: self.clock_shift, block }
    }

    /// The names in its intervals.
    fn used(&self) -> Used {
        let (mut used, mut counts, mut delta) = (Used::default(), Counts::default(), DeviceDelta::default());
        for interval in self.intervals() {
            let ended = interval.ended;
            let mut sum = BlockSum::begin(slice::from_ref(interval), &mut counts);
            while let Some(incarnation) = sum.next_device(&mut delta) {
                used.incarnations.insert(incarnation, ended);
                for series in delta.series() {
                    used.texts.insert(series.op, ended);
                    used.texts.extend(series.errors.iter().map(|(status, _)| (*status, ended)));
                    let workloads = series.usages.workloads().iter();
                    used.workloads.extend(workloads.map(|usage| (usage.workload, ended)));
                }
            }
            used.texts.extend(counts.lost.iter().map(|(reason, _)| (*reason, ended)));
            used.texts.extend(sum.slowest().iter().flat_map(|io| io.texts()).map(|text| (text, ended)));
        }
        used
    }
}

/// A store that is rebuilt from a file's records, in the order they were written.
pub(super) struct Restoring {
    /// Its names are added last, because most names of dropped intervals are not needed.
    store: Store,
    names: Names,
    same: OriginMatch,
    totals: Option<Totals>,
    /// Intervals after the totals that have not been merged into them yet.
    later: Vec<Interval>,
    slow_number: u64,
}

impl Restoring {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            store: Store::new(limits, Duration::ZERO),
            names: Names::default(),
            same: OriginMatch::default(),
            totals: None,
            later: Vec::new(),
            slow_number: 0,
        }
    }

    pub(super) fn add_names(&mut self, names: NewNames) {
        self.names.add(names);
    }

    pub(super) fn add(&mut self, interval: Interval, slow_number: u64) {
        self.slow_number = slow_number;
        if self.totals.is_some() && self.same.devices {
            self.later.push(Interval { breakdown: None, ..interval.clone() });
            if self.later.len() == MERGED_AT_ONCE {
                self.add_to_totals();
            }
        }
        self.store.add(interval);
    }

    pub(super) fn set_totals(&mut self, totals: Totals, same: OriginMatch) {
        (self.totals, self.same) = (Some(totals), same);
    }

    pub(super) const fn has_totals(&self) -> bool {
        self.totals.is_some()
    }

    fn add_to_totals(&mut self) {
        let Some(totals) = &mut self.totals else { return };
        let sum = since_zero(Arc::clone(&totals.block));
        let parts: Vec<_> = std::iter::once(sum).chain(self.later.drain(..)).collect();
        totals.block = self.store.merge(&parts).0;
    }

    /// Finishes the store, to continue at `since_boot`. `opened` is the start of the daemon by the same clock.
    pub(super) fn end(mut self, opened: Duration, since_boot: Duration, now: SystemTime) -> Store {
        self.add_to_totals();
        let Self { mut store, names, same, totals, slow_number, .. } = self;
        let counters = totals.as_ref().filter(|_| same.devices).map(|totals| counters(totals, &names));
        let used = store.used();
        store.names.restore(names, &used);
        store.shrink();
        let Some((ended, ended_us)) = store.intervals().last().map(|last| (last.ended, last.ended_us)) else {
            store.opened = opened;
            return store;
        };
        let same_clock = totals.as_ref().filter(|_| same.boot).map(|totals| totals.clock_shift);
        let same_clock = same_clock.filter(|shift| *shift + since_boot >= ended);
        store.clock_shift = same_clock.unwrap_or_else(|| {
            let away = Duration::from_micros(microseconds(now).saturating_sub(ended_us));
            (ended + away).saturating_sub(since_boot)
        });
        store.opened = opened + store.clock_shift;
        if let Some(counters) = counters.filter(|_| same_clock.is_some()) {
            store.slow_number = slow_number;
            store.restored = Some((Arc::new(counters), ended));
        }
        store
    }
}

/// An interval of everything since the counters were zero.
fn since_zero(block: Arc<[u8]>) -> Interval {
    Interval { began: Duration::ZERO, ended: Duration::ZERO, ended_us: 0, block, breakdown: None }
}

/// The counters as a snapshot.
fn counters(totals: &Totals, names: &Names) -> Snapshot {
    let period = Selection::new(vec![since_zero(Arc::clone(&totals.block))], names.clone(), 0).sum();
    Snapshot { workloads: None, ..period.into_snapshot(totals.started) }
}
