//! What a file needs to have of the store: all of it, or what came since it was written last; and the way back.

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

/// So many intervals are added up at a time.
const ADDED_AT_ONCE: usize = 64;

/// The latest interval that a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Which run of intervals it belongs to, each of which goes on where the one before ended.
    run: u64,
    ended: Duration,
}

/// What a file does not have yet.
pub(super) struct Part {
    pub(super) intervals: Vec<Interval>,
    /// All names.
    pub(super) names: Names,
    /// If it is all of the store: the counters after the last interval.
    pub(super) totals: Option<Totals>,
    /// The number of the latest slow I/O that is in an interval.
    pub(super) slow_number: u64,
    pub(super) mark: Mark,
}

/// What all counters are, so that what came after the last interval can be told.
#[derive(Clone)]
pub(super) struct Totals {
    /// When they were zero.
    pub(super) started: SystemTime,
    /// How much later the store's clock is than that of the boot.
    pub(super) clock_shift: Duration,
    /// An interval since they were zero.
    pub(super) block: Arc<[u8]>,
}

/// How a file's boot and devices relate to those of this daemon.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Same {
    /// The machine has not been started since: the clock goes on.
    pub(super) boot: bool,
    /// The same devices are shown: so may the counters.
    pub(super) devices: bool,
}

impl Store {
    /// What came since a file was written; everything if that cannot be told. None before the first snapshot.
    pub(super) fn part(&mut self, written: Option<Mark>) -> Option<Part> {
        let (snapshot, ended) = self.previous.clone()?;
        let mark = Mark { run: self.run, ended };
        let since = written.filter(|written| {
            let is_across =
                |interval: &Interval| interval.began < written.ended && interval.ended > written.ended;
            written.run == self.run && !self.intervals().any(is_across)
        });
        let totals = since.is_none().then(|| self.totals(&snapshot));
        let is_new = |interval: &&Interval| since.is_none_or(|written| interval.ended > written.ended);
        let intervals = self.intervals().filter(is_new).cloned().collect();
        let (names, slow_number) = (self.names.names.clone(), self.slow_number);
        Some(Part { intervals, names, totals, slow_number, mark })
    }

    /// Puts the intervals of a file before those that were recorded so far. Returns how many there are of the file. `since_boot`
    /// and `now` are the present time, by the clock of [`Self::record`] and by the wall clock.
    pub(super) fn take_over(&mut self, file: Restoring, since_boot: Duration, now: SystemTime) -> usize {
        let mut store = file.end(self.opened, since_boot, now);
        let (restored, last) = (store.intervals().count(), store.intervals().last().map(|last| last.ended));
        if let Some((snapshot, at)) = self.first.take() {
            store.record(&snapshot, at);
        }
        // If the file was another daemon's until now, it has the same time.
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
            while let Some(life) = sum.next_device(&mut delta) {
                used.lives.insert(life, ended);
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

/// A store that is made from what a file has, which comes in the order in which it was written.
pub(super) struct Restoring {
    /// Without names until all intervals are there: those of old ones are not needed.
    store: Store,
    names: Names,
    same: Same,
    totals: Option<Totals>,
    /// Those after the totals that are not in them yet.
    later: Vec<Interval>,
    slow_number: u64,
}

impl Restoring {
    pub(super) fn new(limits: HistoryLimits) -> Self {
        Self {
            store: Store::new(limits, Duration::ZERO),
            names: Names::default(),
            same: Same::default(),
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
            if self.later.len() == ADDED_AT_ONCE {
                self.add_to_totals();
            }
        }
        self.store.add(interval);
    }

    pub(super) fn set_totals(&mut self, totals: Totals, same: Same) {
        (self.totals, self.same) = (Some(totals), same);
    }

    pub(super) const fn has_totals(&self) -> bool {
        self.totals.is_some()
    }

    fn add_to_totals(&mut self) {
        let Some(totals) = &mut self.totals else { return };
        let sum = since_zero(Arc::clone(&totals.block));
        let parts: Vec<_> = std::iter::once(sum).chain(self.later.drain(..)).collect();
        totals.block = self.store.add_up(&parts).0;
    }

    /// The store, to go on at this time since the boot. `opened`: when the daemon began, by the same clock.
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

/// All that came since the counters were zero.
fn since_zero(block: Arc<[u8]>) -> Interval {
    Interval { began: Duration::ZERO, ended: Duration::ZERO, ended_us: 0, block, breakdown: None }
}

/// The counters in the shape of a snapshot.
fn counters(totals: &Totals, names: &Names) -> Snapshot {
    let period = Selection::new(vec![since_zero(Arc::clone(&totals.block))], names.clone(), 0).sum();
    Snapshot { workloads: None, ..period.into_snapshot(totals.started) }
}
