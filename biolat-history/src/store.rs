//! The intervals that are kept: their order, their tiers, and what is given up when there are too many.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_model::{
    period::{KeptFrom, Period},
    snapshot::{DeviceView, SlowIo, Snapshot},
};

use super::{
    block::{BlockSum, BlockWriter, Blocks, Counts, NumberedIo, add_to_slowest, at, microseconds},
    breakdown::Breakdown,
    delta::DeviceDelta,
    interval::Interval,
    names::NameTable,
    selection::Selection,
    usage::GrownUsages,
};

/// How long the intervals of each tier but the first are, and how old they are at least: younger ones are in the tier before.
const COARSER: [Tier; 2] = [
    Tier { width: Duration::from_secs(10), from_age: Duration::from_secs(600) },
    Tier { width: Duration::from_secs(60), from_age: Duration::from_secs(7200) },
];

struct Tier {
    width: Duration,
    from_age: Duration,
}

/// Counters that are older than the store by so much are those of another daemon.
const CONTINUED: Duration = Duration::from_secs(1);

/// Longer than any that was added up: the machine was suspended, or collections are rare. Each range that it overlaps has it.
pub const LONG: Duration = Duration::from_secs(120);

/// What a store may keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// The age of the oldest interval.
    pub age: Duration,
    /// Memory of all intervals.
    pub bytes: usize,
}

/// What came in each interval of the last day, in three tiers: each collection, 10 s, a minute. An interval is in one tier; as
/// it gets older it is added up with its neighbours to one of the next tier. So the sum of all intervals in a range is what the
/// counters grew by in it.
pub struct Store {
    pub(super) limits: HistoryLimits,
    /// When it was made, by the store's clock.
    pub(super) opened: Duration,
    /// How much later the store's clock is than that of [`Self::record`], so that it goes on across boots.
    pub(super) clock_shift: Duration,
    /// Each in the order of time. All of a tier are older than all of the one before.
    tiers: [VecDeque<Interval>; COARSER.len() + 1],
    /// Memory of the intervals.
    bytes: usize,
    pub(super) names: NameTable,
    pub(super) previous: Option<(Arc<Snapshot>, Duration)>,
    /// The counters that another daemon counted last, which the first snapshot may continue.
    pub(super) restored: Option<(Arc<Snapshot>, Duration)>,
    /// Whether a file may still have what came before.
    awaits_file: bool,
    /// The first snapshot, while a file is awaited and if there is no interval before it: the file may have the counters before.
    pub(super) first: Option<(Arc<Snapshot>, Duration)>,
    /// The number of the run of intervals: a new one begins where the counters do not go on from those before.
    pub(super) run: u64,
    /// The number of the latest slow I/O that is in an interval.
    pub(super) slow_number: u64,
    pub(super) writer: BlockWriter,
    pub(super) counts: Counts,
    device: DeviceDelta,
}

impl Store {
    /// Without any interval, at this time.
    #[must_use]
    pub fn new(limits: HistoryLimits, now: Duration) -> Self {
        Self {
            limits,
            opened: now,
            clock_shift: Duration::ZERO,
            tiers: Default::default(),
            bytes: 0,
            names: NameTable::default(),
            previous: None,
            restored: None,
            awaits_file: false,
            first: None,
            run: 0,
            slow_number: 0,
            writer: BlockWriter::default(),
            counts: Counts::default(),
            device: DeviceDelta::default(),
        }
    }

    /// Adds an interval: what came since the snapshot before or, with the first one, since its counters were zero. If another
    /// daemon began to count, there is none before the first: nobody knows when its counters grew. `at` is the time of the snapshot
    /// by a clock that is never set and goes on while the machine is suspended.
    pub fn record(&mut self, snapshot: &Arc<Snapshot>, at: Duration) {
        let at = at + self.clock_shift;
        let counted = snapshot.taken.duration_since(snapshot.started).unwrap_or_default();
        let continued = self.restored.take().filter(|(before, _)| before.started == snapshot.started);
        let has_breakdown = continued.is_none();
        let previous = self.previous.replace((Arc::clone(snapshot), at)).or(continued);
        self.names.begin(at, snapshot.started);
        if previous.is_none() {
            // The log of slow I/Os began again.
            self.slow_number = 0;
            if counted > at.saturating_sub(self.opened) + CONTINUED {
                self.slow_number = snapshot.slow.last().map_or(0, |io| io.number);
                self.first = self.awaits_file.then(|| (Arc::clone(snapshot), at));
                return;
            }
        }
        let began = previous.as_ref().map_or_else(|| at.saturating_sub(counted), |(_, began)| *began);
        // Counters of another start began again.
        let before = previous.map(|(before, _)| before).filter(|before| before.started == snapshot.started);
        if before.is_none() {
            self.run += 1;
        }
        let breakdown = if has_breakdown { Breakdown::of(snapshot) } else { None };
        let (block, breakdown) = self.blocks(before.as_deref(), snapshot, breakdown);
        let ended_us = microseconds(snapshot.taken);
        let interval = Interval { began, ended: at.max(began), ended_us, block, breakdown };
        self.add(interval);
    }

    /// Whether a file may still have what came before. If so, and it is read later, [`Self::take_over`] goes on from there.
    pub(super) fn set_awaits_file(&mut self, awaits: bool) {
        self.awaits_file = awaits;
        self.first = None;
    }

    /// Adds an interval of another store, and what came in it: names have other numbers here.
    pub(super) fn add_renumbered(&mut self, interval: &Interval, period: Period) {
        let [began, ended] = [interval.began, interval.ended].map(|time| time + self.clock_shift);
        let has_workloads = period.workloads.is_some();
        let breakdown = interval.breakdown.as_ref().map(|_| Breakdown { has_workloads });
        let snapshot = period.into_snapshot(at(0));
        self.names.begin(ended, snapshot.started);
        self.slow_number = 0;
        let (block, breakdown) = self.blocks(None, &snapshot, breakdown);
        self.add(Interval { began, ended, block, breakdown, ..*interval });
    }

    /// Adds the next interval of another store, which may be anything: it comes from a file.
    pub fn replay(&mut self, period: Period) {
        let (last, last_us) = self.newest().map_or_else(Default::default, |last| (last.ended, last.ended_us));
        let gap = Duration::from_micros(microseconds(period.began).saturating_sub(last_us));
        let began = if last_us == 0 { last } else { last.saturating_add(gap) };
        let ended = began.saturating_add(period.length);
        let lacks_sizes =
            period.devices.iter().flat_map(|view| &view.series).any(|series| series.sizes.is_none());
        let interval = Interval {
            began,
            ended,
            ended_us: microseconds(period.ended),
            block: Arc::default(),
            breakdown: (period.workloads.is_some() || !lacks_sizes).then(Arc::default),
        };
        self.add_renumbered(&interval, period);
    }

    /// Adds the latest interval.
    pub(super) fn add(&mut self, interval: Interval) {
        let ended = interval.ended;
        self.bytes += interval.bytes();
        self.tiers[0].push_back(interval);
        self.age(ended);
        self.shrink();
    }

    fn blocks(
        &mut self,
        before: Option<&Snapshot>,
        after: &Snapshot,
        breakdown: Option<Breakdown>,
    ) -> Blocks {
        self.take_counts(before, after);
        let has_workloads = breakdown.is_some_and(|breakdown| breakdown.has_workloads);
        let workloads = after.workloads.as_ref().filter(|_| has_workloads).map(|workloads| {
            let before = before.and_then(|before| before.workloads.as_deref()).unwrap_or_default();
            GrownUsages::of(before, workloads, &mut self.names)
        });
        self.writer.begin(&self.counts, breakdown);
        self.write_devices(before, after, workloads.as_ref());
        let slow = self.take_slow(after);
        self.writer.end(&slow)
    }

    pub(super) fn write_devices(
        &mut self,
        before: Option<&Snapshot>,
        after: &Snapshot,
        workloads: Option<&GrownUsages<'_>>,
    ) {
        let devices = &after.devices;
        let mut known: Vec<_> = devices.iter().map(|view| (self.names.known_life(view), view)).collect();
        // New ones last: their numbers are the highest.
        known.sort_unstable_by_key(|&(number, _)| number.unwrap_or(u32::MAX));
        for (_, view) in known {
            let is_same = |had: &&DeviceView| had.device.name == view.device.name && had.since == view.since;
            let before = before.and_then(|before| before.devices.iter().find(is_same));
            if self.device.take(before, view, workloads, &mut self.names) {
                let number = self.names.life(view);
                self.writer.device(number, &self.device);
            }
        }
    }

    pub(super) fn take_counts(&mut self, before: Option<&Snapshot>, after: &Snapshot) {
        let grown = |count: fn(&Snapshot) -> u64| count(after).saturating_sub(before.map_or(0, count));
        self.counts.clear();
        self.counts.collections = grown(|snapshot| snapshot.health.durations.count());
        self.counts.failures = grown(|snapshot| snapshot.health.failures);
        self.counts.slow_dropped = grown(|snapshot| snapshot.slow_dropped);
        for (reason, count) in &after.lost {
            let had = before.and_then(|before| before.lost.get(reason)).copied().unwrap_or_default();
            match count.saturating_sub(had) {
                0 => {}
                came => self.counts.lost.push((self.names.text(reason), came)),
            }
        }
    }

    /// The slowest I/Os that the log has since the last call.
    fn take_slow(&mut self, after: &Snapshot) -> Vec<NumberedIo> {
        let ios = &after.slow;
        let new = &ios[ios.partition_point(|io| io.number <= self.slow_number)..];
        let Some(last) = new.last() else { return Vec::new() };
        self.slow_number = last.number;
        let mut slowest: Vec<&SlowIo> = Vec::new();
        for io in new {
            add_to_slowest(&mut slowest, io, |io| {
                let longest = io.latencies.iter().flatten().max();
                longest.map_or(0, |latency| latency.as_nanos() as u64)
            });
        }
        slowest.into_iter().map(|io| NumberedIo::of(io, &mut self.names)).collect()
    }

    /// Moves what is old enough to the next tier, and drops what is too old for the last.
    fn age(&mut self, now: Duration) {
        for (tier, coarser) in COARSER.iter().enumerate() {
            while self.coarsen(tier, now.saturating_sub(coarser.from_age)) {}
        }
        let oldest = now.saturating_sub(self.limits.age);
        while self.oldest().is_some_and(|interval| interval.ended < oldest) {
            self.drop_oldest();
        }
    }

    /// Stays within the memory: first the oldest sizes and workloads are dropped, then the shortest intervals are added up to those
    /// of 10 s before their time, the oldest first, then those of 10 s to minutes; then the oldest are dropped.
    pub(super) fn shrink(&mut self) {
        while self.bytes() > self.limits.bytes {
            if self.drop_breakdown() {
                continue;
            }
            let is_coarser = (0..COARSER.len()).any(|tier| self.coarsen(tier, Duration::MAX));
            if !is_coarser && !self.drop_oldest() {
                return;
            }
        }
    }

    /// Adds up the oldest intervals of a tier to one of the next, if that ended at this time at the latest and is complete.
    fn coarsen(&mut self, tier: usize, latest: Duration) -> bool {
        let width = COARSER[tier].width;
        let intervals = &self.tiers[tier];
        let Some(first) = intervals.front() else { return false };
        let pairs = intervals.iter().zip(intervals.iter().skip(1));
        let count = 1 + pairs.take_while(|(one, next)| one.continues(first, next, width)).count();
        if count == intervals.len() || intervals[count - 1].ended > latest {
            return false;
        }
        let parts: Vec<_> = self.tiers[tier].drain(..count).collect();
        let sum = match <[Interval; 1]>::try_from(parts) {
            Ok([interval]) => interval,
            Err(parts) => self.sum(&parts),
        };
        self.tiers[tier + 1].push_back(sum);
        true
    }

    /// One interval of several in a row. The parts' memory counts no more, that of the sum does.
    fn sum(&mut self, parts: &[Interval]) -> Interval {
        let (block, breakdown) = self.add_up(parts);
        let mut interval = Interval { block, breakdown, ..parts[parts.len() - 1].clone() };
        interval.began = parts[0].began;
        self.bytes -= parts.iter().map(Interval::bytes).sum::<usize>();
        self.bytes += interval.bytes();
        interval
    }

    pub(super) fn add_up(&mut self, parts: &[Interval]) -> Blocks {
        self.counts.clear();
        let mut sum = BlockSum::begin(parts, &mut self.counts);
        self.writer.begin(&self.counts, sum.breakdown);
        while let Some(number) = sum.next_device(&mut self.device) {
            self.writer.device(number, &self.device);
        }
        self.writer.end(&sum.slowest())
    }

    /// Drops the oldest sizes and workloads. False if there are none.
    fn drop_breakdown(&mut self) -> bool {
        let mut intervals = self.tiers.iter_mut().rev().flatten();
        let Some(interval) = intervals.find(|interval| interval.breakdown.is_some()) else { return false };
        self.bytes -= interval.breakdown_bytes();
        interval.breakdown = None;
        self.forget_names();
        true
    }

    /// The latest interval: each tier is older than the one before.
    fn newest(&self) -> Option<&Interval> {
        self.tiers.iter().find_map(VecDeque::back)
    }

    /// The oldest first.
    pub(super) fn intervals(&self) -> impl Iterator<Item = &Interval> {
        self.tiers.iter().rev().flatten()
    }

    fn oldest(&self) -> Option<&Interval> {
        self.tiers.iter().rev().find_map(VecDeque::front)
    }

    /// False if there is none.
    fn drop_oldest(&mut self) -> bool {
        let dropped = self.tiers.iter_mut().rev().find_map(VecDeque::pop_front);
        self.bytes -= dropped.as_ref().map_or(0, Interval::bytes);
        self.forget_names();
        dropped.is_some()
    }

    /// Forgets the names that no interval has any more. Workloads are named in the breakdowns alone.
    fn forget_names(&mut self) {
        let began = |interval: Option<&Interval>| interval.map_or(Duration::MAX, |interval| interval.began);
        let (oldest, mut intervals) = (began(self.oldest()), self.intervals());
        let broken_down = began(intervals.find(|interval| interval.breakdown.is_some()));
        drop(intervals);
        self.names.forget_before(oldest, broken_down);
    }

    /// Memory of all intervals and of the names in them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.names.bytes()
    }

    /// From when on there are intervals, and in which detail. None without any.
    #[must_use]
    pub fn kept_from(&self) -> Option<KeptFrom> {
        let began = |tier: &VecDeque<Interval>| tier.front().map(|interval| at(interval.began_us()));
        let [collections, ten_seconds, minutes] = self.tiers.each_ref().map(began);
        let ten_seconds = ten_seconds.or(collections);
        let breakdown = self.intervals().find(|interval| interval.breakdown.is_some());
        let breakdown = breakdown.map(|interval| at(interval.began_us()));
        let (ten_seconds, collections) = (ten_seconds?, collections?);
        Some(KeptFrom { all: minutes.unwrap_or(ten_seconds), ten_seconds, collections, breakdown })
    }

    /// The earliest begin and the latest end of all intervals. None without any.
    #[must_use]
    pub fn range(&self) -> Option<[SystemTime; 2]> {
        let began = self.intervals().map(Interval::began_us).min()?;
        let ended = self.intervals().map(|interval| interval.ended_us).max()?;
        Some([began, ended].map(at))
    }

    /// The intervals in a range of the wall clock: those that have their middle in it or, if they are long, any part. If there is
    /// none, the one that has the middle of the range.
    #[must_use]
    pub fn select(&self, from: SystemTime, to: SystemTime) -> Selection {
        let (from, to) = (microseconds(from), microseconds(to));
        let middle = from.midpoint(to);
        let is_within = |interval: &&Interval| {
            let (began, ended) = (interval.began_us(), interval.ended_us);
            let is_long = interval.length() > LONG;
            (from..to).contains(&began.midpoint(ended)) || is_long && began < to && ended > from
        };
        let mut selected: Vec<_> = self.intervals().filter(is_within).cloned().collect();
        if selected.is_empty() {
            let has_middle =
                |interval: &&Interval| (interval.began_us()..interval.ended_us).contains(&middle);
            selected.extend(self.intervals().find(has_middle).cloned());
        }
        Selection::new(selected, self.names.names.clone(), from)
    }
}
