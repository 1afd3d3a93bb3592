//! Intervals of a file, selected and added up as the daemon does it when it is asked for a range and a step.

use std::{collections::HashMap, mem, time::Duration};

use biolat_common::size::BAND_NAMES;
use biolat_history::{LONG, add_to_slowest};
use biolat_model::{
    api::{ApiDevice, ApiInterval, ApiSizes, ApiSlowIo, ApiWorkload, ApiWorkloadUsage, Op},
    saturating::{add, add_named},
    snapshot::Inflight,
};

use super::PastRange;

/// A range of the wall clock that is divided into steps, in microseconds since the epoch.
pub(super) struct Steps {
    from: u64,
    to: u64,
    step: u64,
    /// The intervals so far of one step, and its number.
    current: Option<(u64, IntervalSum)>,
    /// The interval that has the middle of the range. It is selected if no interval has its middle in the range.
    around: Option<ApiInterval>,
    is_empty: bool,
}

impl Steps {
    pub(super) fn new(range: PastRange, step: Duration) -> Self {
        Self {
            from: microseconds(range.from()),
            to: microseconds(range.to()),
            step: (step.as_micros() as u64).max(1),
            current: None,
            around: None,
            is_empty: true,
        }
    }

    /// Adds the next interval; returns what came in the step that it ends.
    pub(super) fn add(&mut self, interval: ApiInterval) -> Option<ApiInterval> {
        let (began, ended) = (microseconds(interval.began), microseconds(interval.taken));
        let middle = began.midpoint(ended);
        let is_long = length(&interval) > LONG;
        let is_within =
            (self.from..self.to).contains(&middle) || is_long && began < self.to && ended > self.from;
        if !is_within {
            if self.is_empty && self.around.is_none() && (began..ended).contains(&self.from.midpoint(self.to))
            {
                self.around = Some(interval);
            }
            return None;
        }
        self.is_empty = false;
        let number = middle.saturating_sub(self.from) / self.step;
        if let Some((current, sum)) = &mut self.current
            && *current == number
        {
            sum.add(interval);
            return None;
        }
        let ended = self.current.replace((number, IntervalSum::begin(interval)));
        ended.map(|(_, sum)| sum.end())
    }

    /// What came in the last step.
    pub(super) fn end(self) -> Option<ApiInterval> {
        match self.current {
            Some((_, sum)) => Some(sum.end()),
            None => self.around,
        }
    }
}

/// Successive intervals together.
struct IntervalSum {
    sum: ApiInterval,
    length: Duration,
    /// Whether all of them have sizes.
    has_sizes: bool,
    places: Places,
}

/// Where everything is in the lists of a sum: a file may have any number of devices, ops and workloads.
#[derive(Default)]
struct Places {
    /// By name, and by the bits of when the counters were zero.
    devices: HashMap<(String, u64), usize>,
    /// By the place of the device.
    ops: HashMap<(usize, String), usize>,
    /// By cgroup.
    workloads: HashMap<String, usize>,
    /// By the place of the workload, by device and op.
    usages: HashMap<(usize, String, String), usize>,
}

impl IntervalSum {
    fn begin(mut first: ApiInterval) -> Self {
        let (length, has_sizes) = (length(&first), has_sizes(&first));
        let (devices, slow) = (mem::take(&mut first.devices), mem::take(&mut first.slow));
        let workloads = first.workloads.as_mut().map(mem::take);
        let mut sum = Self { sum: first, length, has_sizes, places: Places::default() };
        sum.add_lists(devices, workloads, slow);
        sum
    }

    fn add(&mut self, interval: ApiInterval) {
        self.has_sizes &= has_sizes(&interval);
        self.length += length(&interval);
        let sum = &mut self.sum;
        sum.taken = interval.taken;
        add(&mut sum.collections, interval.collections);
        add(&mut sum.failures, interval.failures);
        add(&mut sum.slow_dropped, interval.slow_dropped);
        add_named(&mut sum.lost, &interval.lost);
        self.add_lists(interval.devices, interval.workloads, interval.slow);
    }

    fn add_lists(
        &mut self,
        devices: Vec<ApiDevice>,
        workloads: Option<Vec<ApiWorkload>>,
        slow: Vec<ApiSlowIo>,
    ) {
        devices.into_iter().for_each(|device| self.add_device(device));
        match workloads {
            Some(workloads) => workloads.into_iter().for_each(|workload| self.add_workload(workload)),
            // Without those of a part, there are none of the sum.
            None => self.sum.workloads = None,
        }
        for io in slow {
            add_to_slowest(&mut self.sum.slow, io, latency_ns);
        }
    }

    /// Adds what came. What is not a count is that of the later one.
    fn add_device(&mut self, mut device: ApiDevice) {
        let devices = &mut self.sum.devices;
        let key = (device.name.clone(), device.since.to_bits());
        let place = *self.places.devices.entry(key).or_insert(devices.len());
        let ops = mem::take(&mut device.ops);
        match devices.get_mut(place) {
            Some(had) => add_device(had, device),
            None => devices.push(device),
        }
        let sum = &mut devices[place].ops;
        for op in ops {
            let op_place = *self.places.ops.entry((place, op.op.clone())).or_insert(sum.len());
            match sum.get_mut(op_place) {
                Some(had) => add_op(had, op),
                None => sum.push(op),
            }
        }
    }

    fn add_workload(&mut self, mut workload: ApiWorkload) {
        let Some(workloads) = &mut self.sum.workloads else { return };
        let place = *self.places.workloads.entry(workload.cgroup.clone()).or_insert(workloads.len());
        let usages = mem::take(&mut workload.usage);
        if place == workloads.len() {
            workloads.push(workload);
        }
        let sum = &mut workloads[place].usage;
        for usage in usages {
            let key = (place, usage.device.clone(), usage.op.clone());
            let usage_place = *self.places.usages.entry(key).or_insert(sum.len());
            match sum.get_mut(usage_place) {
                Some(had) => add_usage(had, &usage),
                None => sum.push(usage),
            }
        }
    }

    fn end(mut self) -> ApiInterval {
        if !self.has_sizes {
            self.sum.devices.iter_mut().flat_map(|device| &mut device.ops).for_each(|op| op.sizes = None);
        }
        let workloads = self.sum.workloads.iter_mut();
        workloads.for_each(|all| all.sort_unstable_by(|one, other| one.cgroup.cmp(&other.cgroup)));
        ApiInterval { seconds: self.length.as_secs_f64(), ..self.sum }
    }
}

fn has_sizes(interval: &ApiInterval) -> bool {
    interval.devices.iter().flat_map(|device| &device.ops).all(|op| op.sizes.is_some())
}

/// Adds all but the ops.
fn add_device(had: &mut ApiDevice, device: ApiDevice) {
    let earlier = mem::replace(had, device);
    had.ops = earlier.ops;
    add_named(&mut had.unseen, &earlier.unseen);
    had.inflight = match (earlier.inflight, had.inflight) {
        (Some(one), Some(other)) => Some(most(one, other)),
        (one, other) => one.or(other),
    };
    // A phase that was recorded for a while is shown.
    if earlier.phases.len() > had.phases.len() {
        (had.phases, had.lacks) = (earlier.phases, earlier.lacks);
    }
}

fn most(earlier: Inflight, later: Inflight) -> Inflight {
    let oldest = if later.oldest > earlier.oldest { later } else { earlier };
    Inflight { reads: earlier.reads.max(later.reads), writes: earlier.writes.max(later.writes), ..oldest }
}

fn add_op(had: &mut Op, op: Op) {
    add(&mut had.bytes, op.bytes);
    add(&mut had.requeues, op.requeues);
    add_named(&mut had.errors, &op.errors);
    for (had, came) in [
        (&mut had.admission, &op.admission),
        (&mut had.queue, &op.queue),
        (&mut had.device, &op.device),
        (&mut had.total, &op.total),
    ] {
        had.add(came);
    }
    if let (Some(had), Some(came)) = (&mut had.sizes, op.sizes) {
        add_sizes(had, came);
    }
}

fn add_sizes(had: &mut ApiSizes, came: ApiSizes) {
    had.requests.add(&came.requests);
    for band in came.bands {
        match had.bands.iter_mut().find(|had| had.size == band.size) {
            Some(had) => had.device.add(&band.device),
            None => had.bands.push(band),
        }
    }
    had.bands.sort_by_key(|band| BAND_NAMES.iter().position(|name| *name == band.size));
}

fn add_usage(had: &mut ApiWorkloadUsage, came: &ApiWorkloadUsage) {
    add(&mut had.bytes, came.bytes);
    add(&mut had.errors, came.errors);
    had.queue_seconds += came.queue_seconds;
    had.device_seconds += came.device_seconds;
    had.total.add(&came.total);
}

fn latency_ns(io: &ApiSlowIo) -> u64 {
    let latency = io.latency;
    let longest = [latency.admission, latency.queue, latency.device, latency.total].into_iter().flatten();
    longest.map(|seconds| (seconds * 1e9).round() as u64).max().unwrap_or_default()
}

fn length(interval: &ApiInterval) -> Duration {
    Duration::try_from_secs_f64(interval.seconds).unwrap_or_default()
}

fn microseconds(seconds: f64) -> u64 {
    (seconds * 1e6).round() as u64
}

#[cfg(test)]
mod tests;
