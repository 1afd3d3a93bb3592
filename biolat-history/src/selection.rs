//! Intervals selected by time, and their I/O as plain data, one period after another.

use std::{collections::BTreeMap, time::Duration};

use biolat_model::{
    device::Group,
    name::Name,
    period::Period,
    snapshot::{CpuSpread, DeviceView, SeriesView, WorkloadUsage, WorkloadView},
};

use super::{
    block::{BlockSum, Counts, at},
    delta::{DeviceDelta, SeriesDelta},
    interval::Interval,
    names::{Names, WorkloadName},
};

/// Selected intervals in chronological order. They share the store's memory, and do not change when the store does.
#[derive(Debug)]
pub struct Selection {
    intervals: Vec<Interval>,
    names: Names,
    from_us: u64,
}

impl Selection {
    pub(super) const fn new(intervals: Vec<Interval>, names: Names, from_us: u64) -> Self {
        Self { intervals, names, from_us }
    }

    /// Returns the periods, each computed on demand: one per interval or, with a step, one per step that has intervals, counted
    /// from the start of the range. If the wall clock was set back, several periods can have the same time.
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

    /// The step that contains the interval's middle, which also decides whether it is selected.
    fn step_number(&self, interval: &Interval, step: Duration) -> u64 {
        let middle = interval.began_us().midpoint(interval.ended_us);
        middle.saturating_sub(self.from_us) / (step.as_micros() as u64).max(1)
    }

    /// The sum of all intervals.
    pub(super) fn sum(&self) -> Period {
        self.period(&self.intervals)
    }

    fn period(&self, intervals: &[Interval]) -> Period {
        let (mut counts, mut delta) = (Counts::default(), DeviceDelta::default());
        let mut sum = BlockSum::begin(intervals, &mut counts);
        let mut devices = Vec::new();
        let mut workloads = BTreeMap::new();
        while let Some(number) = sum.next_device(&mut delta) {
            if let Some(view) = self.device(number, &delta) {
                self.add_usages(&mut workloads, &view.device.name, &delta);
                devices.push(view);
            }
        }
        let has_workloads = sum.breakdown.is_some_and(|breakdown| breakdown.has_workloads);
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
            workloads: has_workloads.then(|| self.workloads(workloads)),
            lost: self.named(&counts.lost),
            summary: Vec::new(),
            slow,
            slow_dropped: counts.slow_dropped,
        }
    }

    fn device(&self, number: u32, delta: &DeviceDelta) -> Option<DeviceView> {
        let incarnation = self.names.incarnation(number)?;
        let missed = Group::ALL.into_iter().zip(delta.missed);
        Some(DeviceView {
            lacks: DeviceView::lacks(&incarnation.device, delta.phases),
            device: incarnation.device.clone(),
            since: incarnation.since,
            phases: delta.phases,
            series: delta.series().iter().map(|series| self.series(series)).collect(),
            unseen: missed.filter(|(_, missed)| *missed > 0).collect(),
            inflight: delta.inflight,
            tag_waits: None,
            spread: CpuSpread::default(),
            nvme_events: BTreeMap::new(),
        })
    }

    fn series(&self, delta: &SeriesDelta) -> SeriesView {
        SeriesView {
            op: self.names.text(delta.op).to_owned(),
            bytes: delta.bytes,
            histograms: delta.histograms(),
            errors: self.named(&delta.errors),
            requeues: delta.requeues,
            sizes: delta.sizes.view(),
            ended_workload_ios: 0,
        }
    }

    /// Adds the usage of a device by each workload, keyed by the workload's number.
    fn add_usages(
        &self,
        workloads: &mut BTreeMap<u32, Vec<WorkloadUsage>>,
        device: &str,
        delta: &DeviceDelta,
    ) {
        for series in delta.series() {
            for usage in series.usages.workloads() {
                let usages = workloads.entry(usage.workload).or_default();
                let op = self.names.text(series.op);
                // Another device may have had the same name before.
                let place =
                    usages.iter().position(|had| had.device == device && had.op == op).unwrap_or_else(|| {
                        let (device, op) = (device.to_owned(), op.to_owned());
                        usages.push(WorkloadUsage { device, op, ..WorkloadUsage::default() });
                        usages.len() - 1
                    });
                let had = &mut usages[place];
                had.bytes += usage.bytes;
                had.errors += usage.errors;
                had.queue_ns += u128::from(usage.queue_ns);
                had.device_ns += u128::from(usage.device_ns);
                had.latency.add(&usage.latency.histogram().into());
            }
        }
    }

    fn workloads(&self, usages: BTreeMap<u32, Vec<WorkloadUsage>>) -> Vec<WorkloadView> {
        let view = |(number, usage)| {
            let WorkloadName { cgroup, identity, since } = self.names.workload(number)?;
            Some(WorkloadView { usage, ..WorkloadView::new(cgroup, identity, *since) })
        };
        let mut views: Vec<_> = usages.into_iter().filter_map(view).collect();
        views.sort_unstable_by(|one, other| one.cgroup.cmp(&other.cgroup));
        views
    }

    fn named(&self, counts: &[(u32, u64)]) -> BTreeMap<Name, u64> {
        counts.iter().map(|&(name, count)| (self.names.text(name).to_owned().into(), count)).collect()
    }
}
