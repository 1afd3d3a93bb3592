//! Intervals that were selected by time, and what came in them as plain data, one period after the other.

use std::time::{Duration, SystemTime};

use super::{
    block::{BlockSum, Counts, at},
    delta::{DeviceDelta, SeriesDelta},
    interval::Interval,
    names::Names,
};
use crate::{
    device::diskstats::Group,
    snapshot::{CpuSpread, DeviceView, SeriesView, SlowIo},
};

/// From when on there are intervals of each tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptFrom {
    /// Of any tier: from here on the history is complete.
    pub all: SystemTime,
    /// Of 10 s or shorter.
    pub ten_seconds: SystemTime,
    /// Of each collection.
    pub collections: SystemTime,
}

/// Selected intervals, in the order of time. They share the store's memory, and stay as they are while it goes on.
#[derive(Debug)]
pub struct Selection {
    intervals: Vec<Interval>,
    names: Names,
    from_us: u64,
}

/// What came in some successive intervals. The counters of devices are those that came; a device or op without any is left
/// out.
#[derive(Clone, Debug)]
pub struct Period {
    /// By the wall clock as it was set when it ended.
    pub began: SystemTime,
    pub ended: SystemTime,
    /// Its length by the monotonic clock.
    pub length: Duration,
    /// Collections in it, and how many of them failed.
    pub collections: u64,
    pub failures: u64,
    /// Of I/Os in flight the largest numbers and the largest age of all collections.
    pub devices: Vec<DeviceView>,
    /// Completions in no histogram by reason, those that occurred.
    pub lost: Vec<(&'static str, u64)>,
    /// Its slowest I/Os, in the order of their numbers.
    pub slow: Vec<SlowIo>,
    /// Slow I/Os that were not recorded.
    pub slow_dropped: u64,
}

impl Selection {
    pub(super) const fn new(intervals: Vec<Interval>, names: Names, from_us: u64) -> Self {
        Self { intervals, names, from_us }
    }

    /// The periods, each made when it is asked for: of one interval each or, with a step, of all intervals that begin within
    /// the same step since the start of the range. The wall clock may have been set back, so that there are several periods
    /// of one time.
    pub fn into_periods(self, step: Option<Duration>) -> impl Iterator<Item = Period> {
        let mut next = 0;
        std::iter::from_fn(move || {
            let rest = self.intervals.get(next..)?;
            let first = rest.first()?;
            let count = match step {
                Some(step) => {
                    let number = self.step_number(first, step);
                    rest.iter().take_while(|interval| self.step_number(interval, step) == number).count()
                }
                None => 1,
            };
            next += count;
            Some(self.period(&rest[..count]))
        })
    }

    /// By the middle, as the selection.
    fn step_number(&self, interval: &Interval, step: Duration) -> u64 {
        let middle = interval.began_us().midpoint(interval.ended_us);
        middle.saturating_sub(self.from_us) / (step.as_micros() as u64).max(1)
    }

    fn period(&self, intervals: &[Interval]) -> Period {
        let (mut counts, mut delta) = (Counts::default(), DeviceDelta::default());
        let mut sum = BlockSum::begin(intervals.iter().map(|interval| &*interval.block), &mut counts);
        let mut devices = Vec::new();
        while let Some(number) = sum.next_device(&mut delta) {
            devices.extend(self.device(number, &delta));
        }
        let slow = sum.slowest().iter().map(|io| io.named(&self.names)).collect();
        let length = intervals.iter().map(Interval::length).sum();
        let ended_us = intervals.last().map_or(0, |last| last.ended_us);
        Period {
            began: at(intervals.first().map_or(0, Interval::began_us)),
            ended: at(ended_us),
            length,
            collections: counts.collections,
            failures: counts.failures,
            devices,
            lost: self.fixed_names(&counts.lost),
            slow,
            slow_dropped: counts.slow_dropped,
        }
    }

    fn device(&self, number: u32, delta: &DeviceDelta) -> Option<DeviceView> {
        let life = self.names.life(number)?;
        let missed = Group::ALL.into_iter().zip(delta.missed);
        Some(DeviceView {
            device: life.device.clone(),
            since: life.since,
            phases: delta.phases,
            series: delta.series().iter().map(|series| self.series(series)).collect(),
            unseen: missed.filter(|(_, missed)| *missed > 0).collect(),
            inflight: delta.inflight,
            spread: CpuSpread::default(),
        })
    }

    fn series(&self, delta: &SeriesDelta) -> SeriesView {
        SeriesView {
            op: self.names.text(delta.op).to_owned(),
            bytes: delta.bytes,
            histograms: delta.histograms(),
            errors: self.fixed_names(&delta.errors),
            requeues: delta.requeues,
            sizes: None,
            ended_workload_ios: 0,
        }
    }

    fn fixed_names(&self, counts: &[(u32, u64)]) -> Vec<(&'static str, u64)> {
        counts.iter().map(|&(name, count)| (self.names.fixed(name), count)).collect()
    }
}
