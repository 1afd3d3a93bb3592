//! The intervals that are kept: their order, their tiers, and what is given up when there are too many.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{
    block::{BlockSum, BlockWriter, Counts, NumberedIo, add_to_slowest, at, microseconds},
    delta::DeviceDelta,
    interval::Interval,
    names::NameTable,
    selection::{KeptFrom, Selection},
};
use crate::snapshot::{DeviceView, SlowIo, Snapshot};

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
    limits: HistoryLimits,
    /// When it was made, by the clock of [`Self::record`].
    opened: Duration,
    /// Each in the order of time. All of a tier are older than all of the one before.
    tiers: [VecDeque<Interval>; COARSER.len() + 1],
    /// Memory of the intervals.
    bytes: usize,
    names: NameTable,
    previous: Option<(Arc<Snapshot>, Duration)>,
    /// The number of the latest slow I/O that is in an interval.
    slow_number: u64,
    writer: BlockWriter,
    counts: Counts,
    device: DeviceDelta,
}

impl Store {
    /// Without any interval, at this time.
    #[must_use]
    pub fn new(limits: HistoryLimits, now: Duration) -> Self {
        Self {
            limits,
            opened: now,
            tiers: Default::default(),
            bytes: 0,
            names: NameTable::default(),
            previous: None,
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
        let counted = snapshot.taken.duration_since(snapshot.started).unwrap_or_default();
        let previous = self.previous.replace((Arc::clone(snapshot), at));
        if previous.is_none() && counted > at.saturating_sub(self.opened) + CONTINUED {
            self.slow_number = snapshot.slow.ios.last().map_or(0, |io| io.number);
            return;
        }
        let began = previous.as_ref().map_or_else(|| at.saturating_sub(counted), |(_, began)| *began);
        // Counters of another start began again.
        let before = previous.map(|(before, _)| before).filter(|before| before.started == snapshot.started);
        self.names.begin(at);
        let interval = Interval {
            began,
            ended: at.max(began),
            ended_us: microseconds(snapshot.taken),
            block: self.block(before.as_deref(), snapshot),
        };
        self.bytes += interval.bytes();
        self.tiers[0].push_back(interval);
        self.age(at);
        self.shrink();
    }

    fn block(&mut self, before: Option<&Snapshot>, after: &Snapshot) -> Arc<[u8]> {
        self.take_counts(before, after);
        self.writer.begin(&self.counts);
        let devices = &after.devices;
        let mut known: Vec<_> = devices.iter().map(|view| (self.names.known_life(view), view)).collect();
        // New ones last: their numbers are the highest.
        known.sort_unstable_by_key(|&(number, _)| number.unwrap_or(u32::MAX));
        for (_, view) in known {
            let is_same = |had: &&DeviceView| had.device.name == view.device.name && had.since == view.since;
            let before = before.and_then(|before| before.devices.iter().find(is_same));
            if self.device.take(before, view, &mut self.names) {
                let number = self.names.life(view);
                self.writer.device(number, &self.device);
            }
        }
        let slow = self.take_slow(after);
        self.writer.end(&slow)
    }

    fn take_counts(&mut self, before: Option<&Snapshot>, after: &Snapshot) {
        let grown = |count: fn(&Snapshot) -> u64| count(after).saturating_sub(before.map_or(0, count));
        self.counts.clear();
        self.counts.collections = grown(|snapshot| snapshot.health.durations.count());
        self.counts.failures = grown(|snapshot| snapshot.health.failures);
        self.counts.slow_dropped = grown(|snapshot| snapshot.slow.dropped);
        for &(reason, count) in &after.lost {
            let had = before.and_then(|before| before.lost.iter().find(|(had, _)| *had == reason));
            match count.saturating_sub(had.map_or(0, |(_, had)| *had)) {
                0 => {}
                came => self.counts.lost.push((self.names.fixed(reason), came)),
            }
        }
    }

    /// The slowest I/Os that the log has since the last call.
    fn take_slow(&mut self, after: &Snapshot) -> Vec<NumberedIo> {
        let ios = &after.slow.ios;
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

    /// Stays within the memory: first the shortest intervals are added up to those of 10 s before their time, the oldest first,
    /// then those of 10 s to minutes; then the oldest are dropped.
    fn shrink(&mut self) {
        while self.bytes() > self.limits.bytes {
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
        self.counts.clear();
        let blocks = parts.iter().map(|part| &*part.block);
        let mut sum = BlockSum::begin(blocks, &mut self.counts);
        self.writer.begin(&self.counts);
        while let Some(number) = sum.next_device(&mut self.device) {
            self.writer.device(number, &self.device);
        }
        let block = self.writer.end(&sum.slowest());
        let mut interval = Interval { block, ..parts[parts.len() - 1].clone() };
        interval.began = parts[0].began;
        self.bytes -= parts.iter().map(Interval::bytes).sum::<usize>();
        self.bytes += interval.bytes();
        interval
    }

    fn oldest(&self) -> Option<&Interval> {
        self.tiers.iter().rev().find_map(VecDeque::front)
    }

    /// False if there is none.
    fn drop_oldest(&mut self) -> bool {
        let dropped = self.tiers.iter_mut().rev().find_map(VecDeque::pop_front);
        self.bytes -= dropped.as_ref().map_or(0, Interval::bytes);
        self.names.forget_before(self.oldest().map_or(Duration::MAX, |oldest| oldest.began));
        dropped.is_some()
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
        Some(KeptFrom { all: minutes.or(ten_seconds)?, ten_seconds: ten_seconds?, collections: collections? })
    }

    /// The intervals in a range of the wall clock: those that have their middle in it or, if there is none, the one that has
    /// the middle of the range.
    #[must_use]
    pub fn select(&self, from: SystemTime, to: SystemTime) -> Selection {
        let (from, to) = (microseconds(from), microseconds(to));
        let middle = from.midpoint(to);
        let intervals = || self.tiers.iter().rev().flatten();
        let is_within =
            |interval: &&Interval| (from..to).contains(&interval.began_us().midpoint(interval.ended_us));
        let mut selected: Vec<_> = intervals().filter(is_within).cloned().collect();
        if selected.is_empty() {
            let has_middle =
                |interval: &&Interval| (interval.began_us()..interval.ended_us).contains(&middle);
            selected.extend(intervals().find(has_middle).cloned());
        }
        Selection::new(selected, self.names.names.clone(), from)
    }
}
