//! The stored intervals: their order, their tiers, and the eviction order when memory runs short.

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

/// The second and third tiers: the length of their intervals, and the age at which an interval moves there.
const COARSER_TIERS: [Tier; 2] = [
    Tier { width: Duration::from_secs(10), from_age: Duration::from_secs(600) },
    Tier { width: Duration::from_secs(60), from_age: Duration::from_secs(7200) },
];

struct Tier {
    width: Duration,
    from_age: Duration,
}

/// Counters that started more than this before the store was opened belong to another daemon.
const START_TOLERANCE: Duration = Duration::from_secs(1);

/// Intervals longer than this are never merged: the machine was suspended, or collections are rare. Such an interval is in every
/// range that it overlaps.
pub const LONG_INTERVAL: Duration = Duration::from_secs(120);

/// Limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// Maximum age of an interval.
    pub age: Duration,
    /// Maximum memory of all intervals.
    pub bytes: usize,
}

/// The intervals of the last day in three tiers: one per collection, 10 s, a minute. Each interval is in exactly one tier. As it
/// ages, it is merged with its neighbours into one interval of the next tier, so the intervals of any range always add up to the
/// growth of the counters.
pub struct Store {
    pub(super) limits: HistoryLimits,
    /// Time of creation, by the store's clock.
    pub(super) opened: Duration,
    /// Offset of the store's clock from the clock of [`Self::record`]. It keeps the store's clock running across boots.
    pub(super) clock_shift: Duration,
    /// Each tier in chronological order. Every interval of a tier is older than all intervals of the previous tier.
    tiers: [VecDeque<Interval>; COARSER_TIERS.len() + 1],
    /// Memory of the intervals.
    bytes: usize,
    pub(super) names: NameTable,
    pub(super) previous: Option<(Arc<Snapshot>, Duration)>,
    /// The previous daemon's last counters, which the first snapshot can continue.
    pub(super) restored: Option<(Arc<Snapshot>, Duration)>,
    /// Whether a file with earlier intervals may still be read.
    awaits_file: bool,
    /// The first snapshot, kept if it made no interval and a file is awaited: the file may have the counters that precede it.
    pub(super) first: Option<(Arc<Snapshot>, Duration)>,
    /// Number of the run of intervals. A new run begins where the counters do not continue the previous ones.
    pub(super) run: u64,
    /// Number of the latest slow I/O in an interval.
    pub(super) slow_number: u64,
    pub(super) writer: BlockWriter,
    pub(super) counts: Counts,
    device: DeviceDelta,
}

impl Store {
    /// Creates an empty store at this time.
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

    /// Adds an interval with the I/O since the previous snapshot or, for the first one, since the counters were zero. If another
    /// daemon started the counters, the first snapshot makes no interval, because it is unknown when they grew. `at` is the time
    /// of the snapshot by a clock that is never set and keeps running while the machine is suspended.
    pub fn record(&mut self, snapshot: &Arc<Snapshot>, at: Duration) {
        let at = at + self.clock_shift;
        let counted = snapshot.taken.duration_since(snapshot.started).unwrap_or_default();
        let continued = self.restored.take().filter(|(before, _)| before.started == snapshot.started);
        let has_breakdown = continued.is_none();
        let previous = self.previous.replace((Arc::clone(snapshot), at)).or(continued);
        self.names.begin(at, snapshot.started);
        if previous.is_none() {
            // The log of slow I/Os started over.
            self.slow_number = 0;
            if counted > at.saturating_sub(self.opened) + START_TOLERANCE {
                self.slow_number = snapshot.slow.last().map_or(0, |io| io.number);
                self.first = self.awaits_file.then(|| (Arc::clone(snapshot), at));
                return;
            }
        }
        let began = previous.as_ref().map_or_else(|| at.saturating_sub(counted), |(_, began)| *began);
        // After a restart the counters started over.
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

    /// Sets whether a file with earlier intervals may still be read. If it is read, [`Self::take_over`] inserts its intervals
    /// before those recorded meanwhile.
    pub(super) fn set_awaits_file(&mut self, awaits: bool) {
        self.awaits_file = awaits;
        self.first = None;
    }

    /// Adds an interval of another store, given its I/O. Its names get new numbers here.
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

    /// Adds the next interval of a saved history. It comes from a file, so any value is possible.
    pub fn replay(&mut self, period: Period) {
        let (last, last_us) = self.newest().map_or_else(Default::default, |last| (last.ended, last.ended_us));
        let gap = Duration::from_micros(microseconds(period.began).saturating_sub(last_us));
        let began = if last_us == 0 { last } else { last.saturating_add(gap) };
        let ended = began.saturating_add(period.length);
        // Volumes never have sizes.
        let drives = period.devices.iter().filter(|view| !view.device.is_volume());
        let lacks_sizes = drives.flat_map(|view| &view.series).any(|series| series.sizes.is_none());
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
        let mut known: Vec<_> =
            devices.iter().map(|view| (self.names.known_incarnation(view), view)).collect();
        // New ones last: they will get the highest numbers.
        known.sort_unstable_by_key(|&(number, _)| number.unwrap_or(u32::MAX));
        for (_, view) in known {
            let is_same = |had: &&DeviceView| had.device.name == view.device.name && had.since == view.since;
            let before = before.and_then(|before| before.devices.iter().find(is_same));
            if self.device.take(before, view, workloads, &mut self.names) {
                let number = self.names.incarnation(view);
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
                growth => self.counts.lost.push((self.names.text(reason), growth)),
            }
        }
    }

    /// Takes the slowest of the I/Os that were logged since the last call.
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

    /// Moves intervals that are old enough to the next tier, and drops those that are too old for the last.
    fn age(&mut self, now: Duration) {
        for (tier, coarser) in COARSER_TIERS.iter().enumerate() {
            while self.coarsen(tier, now.saturating_sub(coarser.from_age)) {}
        }
        let oldest = now.saturating_sub(self.limits.age);
        while self.oldest().is_some_and(|interval| interval.ended < oldest) {
            self.drop_oldest();
        }
    }

    /// Enforces the memory limit. Drops the oldest sizes and workloads first; then merges the oldest collections into 10 s
    /// intervals ahead of time, then the oldest 10 s intervals into minutes; then drops the oldest minutes.
    pub(super) fn shrink(&mut self) {
        while self.bytes() > self.limits.bytes {
            if self.drop_breakdown() {
                continue;
            }
            let is_coarser = (0..COARSER_TIERS.len()).any(|tier| self.coarsen(tier, Duration::MAX));
            if !is_coarser && !self.drop_oldest() {
                return;
            }
        }
    }

    /// Merges the oldest intervals of a tier into one interval of the next tier, if that one is complete and ended by `latest`.
    fn coarsen(&mut self, tier: usize, latest: Duration) -> bool {
        let width = COARSER_TIERS[tier].width;
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

    /// Merges consecutive intervals into one, and accounts for its memory instead of theirs.
    fn sum(&mut self, parts: &[Interval]) -> Interval {
        let (block, breakdown) = self.merge(parts);
        let mut interval = Interval { block, breakdown, ..parts[parts.len() - 1].clone() };
        interval.began = parts[0].began;
        self.bytes -= parts.iter().map(Interval::bytes).sum::<usize>();
        self.bytes += interval.bytes();
        interval
    }

    pub(super) fn merge(&mut self, parts: &[Interval]) -> Blocks {
        self.counts.clear();
        let mut sum = BlockSum::begin(parts, &mut self.counts);
        self.writer.begin(&self.counts, sum.breakdown);
        while let Some(number) = sum.next_device(&mut self.device) {
            self.writer.device(number, &self.device);
        }
        self.writer.end(&sum.slowest())
    }

    /// Drops the oldest sizes and workloads. Returns false if there are none.
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

    /// Returns false if there is none.
    fn drop_oldest(&mut self) -> bool {
        let dropped = self.tiers.iter_mut().rev().find_map(VecDeque::pop_front);
        self.bytes -= dropped.as_ref().map_or(0, Interval::bytes);
        self.forget_names();
        dropped.is_some()
    }

    /// Forgets names that no interval uses any longer. Only sizes and workloads refer to the names of workloads.
    fn forget_names(&mut self) {
        let began = |interval: Option<&Interval>| interval.map_or(Duration::MAX, |interval| interval.began);
        let (oldest, mut intervals) = (began(self.oldest()), self.intervals());
        let broken_down = began(intervals.find(|interval| interval.breakdown.is_some()));
        drop(intervals);
        self.names.forget_before(oldest, broken_down);
    }

    /// Memory of all intervals and their names.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes + self.names.bytes()
    }

    /// The start of the kept intervals at each level of detail. `None` if there are no intervals.
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

    /// The earliest start and the latest end of all intervals. `None` if there are none.
    #[must_use]
    pub fn range(&self) -> Option<[SystemTime; 2]> {
        let began = self.intervals().map(Interval::began_us).min()?;
        let ended = self.intervals().map(|interval| interval.ended_us).max()?;
        Some([began, ended].map(at))
    }

    /// Selects the intervals of a wall clock range: all whose midpoint is in it, and long ones that overlap it. If there are
    /// none, selects the interval that contains the midpoint of the range.
    #[must_use]
    pub fn select(&self, from: SystemTime, to: SystemTime) -> Selection {
        let (from, to) = (microseconds(from), microseconds(to));
        let middle = from.midpoint(to);
        let is_within = |interval: &&Interval| {
            let (began, ended) = (interval.began_us(), interval.ended_us);
            let is_long = interval.length() > LONG_INTERVAL;
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
