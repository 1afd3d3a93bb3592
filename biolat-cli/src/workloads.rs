//! The I/O of a window by workload: what each cgroup did on each device.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::AddAssign,
};

use biolat_model::{
    band_histogram::BandHistogram,
    saturating::add,
    snapshot::{WorkloadUsage, WorkloadView},
    text::sanitize,
};

/// The root cgroup: the kernel's own I/O and I/O of processes in it.
pub(super) const ROOT: &str = "/";

/// Stands for all cgroups without a slot of their own.
pub(super) const OTHER: &str = "other";

/// One workload on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WorkloadWindow {
    /// Path of the cgroup.
    pub(super) cgroup: String,
    /// Display name.
    pub(super) name: String,
    /// The sum over all ops.
    pub(super) all: WorkloadFigures,
    /// Sum over reads and writes only: other ops can take a long time even on a healthy device.
    pub(super) reads_and_writes: WorkloadFigures,
    /// Time its requests spent in the device, or in queue and device if the kernel does not record the dispatch.
    pub(super) seconds: f64,
    /// Its share of the time that all workloads spent in the device.
    pub(super) share: f64,
}

/// Figures that can be summed over ops and workloads.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WorkloadFigures {
    /// Bytes transferred.
    pub(super) bytes: u64,
    /// Failed requests.
    pub(super) errors: u64,
    /// Sum of all requests' time in the queue.
    pub(super) queue_seconds: f64,
    /// Sum of all requests' time in the device.
    pub(super) device_seconds: f64,
    /// Latencies of queue and device together.
    pub(super) total: BandHistogram,
}

impl WorkloadFigures {
    /// Number of I/Os: each has a total latency.
    pub(super) fn ios(&self) -> u64 {
        self.total.count()
    }

    /// Sum of all requests' time in queue and device.
    pub(super) fn total_seconds(&self) -> f64 {
        self.total.at_most_schema_1().sum_seconds()
    }

    /// Growth since `before`, or everything if a counter went down.
    fn since(&self, before: Option<&Self>) -> Self {
        let is_continued = |before: &&Self| {
            self.bytes >= before.bytes && self.errors >= before.errors && self.ios() >= before.ios()
        };
        let Some(before) = before.filter(is_continued) else { return self.clone() };
        Self {
            bytes: self.bytes - before.bytes,
            errors: self.errors - before.errors,
            queue_seconds: (self.queue_seconds - before.queue_seconds).max(0.0),
            device_seconds: (self.device_seconds - before.device_seconds).max(0.0),
            total: self.total.since(&before.total),
        }
    }

    fn is_idle(&self) -> bool {
        self.ios() == 0 && self.bytes == 0 && self.errors == 0
    }
}

impl From<&WorkloadUsage> for WorkloadFigures {
    fn from(usage: &WorkloadUsage) -> Self {
        let WorkloadUsage { device: _, op: _, bytes, errors, queue_ns: _, device_ns: _, ref latency } =
            *usage;
        let (queue_seconds, device_seconds) = (usage.queue_seconds(), usage.device_seconds());
        Self { bytes, errors, queue_seconds, device_seconds, total: latency.clone() }
    }
}

impl AddAssign<&Self> for WorkloadFigures {
    fn add_assign(&mut self, other: &Self) {
        add(&mut self.bytes, other.bytes);
        add(&mut self.errors, other.errors);
        self.queue_seconds += other.queue_seconds;
        self.device_seconds += other.device_seconds;
        self.total.add(&other.total);
    }
}

/// The growth since `before`, by device. A workload counts from zero if it is new or was reset, and on every device that is not
/// in `continued`, because that device is new.
pub(super) fn by_device<'a>(
    before: &[WorkloadView],
    after: &'a [WorkloadView],
    continued: &BTreeSet<&str>,
) -> BTreeMap<&'a str, Vec<WorkloadWindow>> {
    let before: HashMap<_, _> = before.iter().map(|workload| (workload.cgroup.as_str(), workload)).collect();
    let mut devices: BTreeMap<&str, Vec<WorkloadWindow>> = BTreeMap::new();
    for workload in after {
        let before = before.get(workload.cgroup.as_str()).filter(|before| before.since == workload.since);
        let had = before.map(|before| by_series(&before.usage)).unwrap_or_default();
        for ((device, op), has) in by_series(&workload.usage) {
            let figures = has.since(had.get(&(device, op)).filter(|_| continued.contains(device)));
            if figures.is_idle() {
                continue;
            }
            let workloads = devices.entry(device).or_default();
            if workloads.last().is_none_or(|last| last.cgroup != workload.cgroup) {
                workloads.push(WorkloadWindow::new(workload));
            }
            if let Some(workload) = workloads.last_mut() {
                workload.all += &figures;
                if matches!(op, "read" | "write") {
                    workload.reads_and_writes += &figures;
                }
            }
        }
    }
    devices
}

/// One cgroup on all devices, shown or not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CgroupWindow {
    /// Path of the cgroup.
    pub(super) cgroup: String,
    /// Display name.
    pub(super) name: String,
    /// Sum of all requests' time in queue and device.
    pub(super) request_seconds: f64,
    /// Total latencies of reads and writes.
    pub(super) reads_and_writes: BandHistogram,
    /// Time with at least one task stalled on I/O. `None` if unknown.
    pub(super) stalled_seconds: Option<f64>,
    /// Whether `io.max` limits it.
    pub(super) has_limit: bool,
}

/// The growth since `before`, by cgroup.
pub(super) fn by_cgroup(before: &[WorkloadView], after: &[WorkloadView]) -> Vec<CgroupWindow> {
    let before: HashMap<_, _> = before.iter().map(|workload| (workload.cgroup.as_str(), workload)).collect();
    let cgroup = |workload: &WorkloadView| {
        let before = before.get(workload.cgroup.as_str()).filter(|before| before.since == workload.since);
        let had = before.map(|before| by_series(&before.usage)).unwrap_or_default();
        let WorkloadWindow { cgroup, name, .. } = WorkloadWindow::new(workload);
        let mut window = CgroupWindow { cgroup, name, ..CgroupWindow::default() };
        for ((device, op), has) in by_series(&workload.usage) {
            let figures = has.since(had.get(&(device, op)));
            window.request_seconds += figures.total_seconds();
            if matches!(op, "read" | "write") {
                window.reads_and_writes.add(&figures.total);
            }
        }
        // A figure that is new has counted from zero.
        if let Some(stalled) = workload.stalled {
            let had = before.and_then(|before| before.stalled).unwrap_or_default();
            window.stalled_seconds = Some(stalled.some.saturating_sub(had.some).as_secs_f64());
            window.has_limit = stalled.has_limit;
        }
        window
    };
    after.iter().map(cgroup).collect()
}

/// Sums by device and op. A device that was replaced may still be listed under the same name.
fn by_series(usage: &[WorkloadUsage]) -> BTreeMap<(&str, &str), WorkloadFigures> {
    let mut series: BTreeMap<_, WorkloadFigures> = BTreeMap::new();
    for usage in usage {
        *series.entry((usage.device.as_str(), usage.op.as_str())).or_default() += &usage.into();
    }
    series
}

/// Sorts the workloads of a device by their share of its time, largest first.
pub(super) fn ranked(mut workloads: Vec<WorkloadWindow>, has_device_latency: bool) -> Vec<WorkloadWindow> {
    for workload in &mut workloads {
        workload.seconds =
            if has_device_latency { workload.all.device_seconds } else { workload.all.total_seconds() };
    }
    let all: f64 = workloads.iter().map(|workload| workload.seconds).sum();
    if all > 0.0 {
        workloads.iter_mut().for_each(|workload| workload.share = workload.seconds / all);
    }
    workloads.sort_by(|one, other| {
        let by_load = other.seconds.total_cmp(&one.seconds).then(other.all.ios().cmp(&one.all.ios()));
        by_load.then_with(|| one.cgroup.cmp(&other.cgroup))
    });
    workloads
}

impl WorkloadWindow {
    fn new(workload: &WorkloadView) -> Self {
        let WorkloadView { cgroup, name, .. } = workload;
        let name = if name.is_empty() { cgroup } else { name };
        // Local names have not been sanitized yet.
        Self { cgroup: sanitize::text(cgroup), name: sanitize::text(name), ..Self::default() }
    }

    /// Its name in a sentence.
    pub(super) fn in_words(&self) -> &str {
        match self.cgroup.as_str() {
            ROOT => "the root cgroup (the kernel and processes in it)",
            OTHER => "the workloads counted as other",
            _ => &self.name,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_model::snapshot::{Snapshot, WorkloadUsage, WorkloadView};
    use biolat_testing::samples::{self, usage, workload};

    use crate::window::Window;

    fn snapshot(workloads: Vec<WorkloadView>) -> Snapshot {
        let devices = ["sda", "sdb"].map(|name| samples::device(name, 9.0, vec![]));
        Snapshot { workloads: Some(workloads), ..samples::snapshot(60.0, devices.into()) }
    }

    /// The workloads of each device: name, I/Os, bytes, and milliseconds in the device.
    fn between(before: &Snapshot, after: &Snapshot) -> [Vec<(String, u64, u64, u64)>; 2] {
        let window = Window::between(before, after);
        [0, 1].map(|device| {
            let workloads = window.devices[device].workloads.as_ref().unwrap().iter();
            let figures = workloads.map(|workload| {
                let ms = (workload.seconds * 1e3).round() as u64;
                (workload.name.clone(), workload.all.ios(), workload.all.bytes, ms)
            });
            figures.collect()
        })
    }

    fn row(name: &str, ios: u64, bytes: u64, ms: u64) -> (String, u64, u64, u64) {
        (name.to_owned(), ios, bytes, ms)
    }

    /// 10 reads and 2 writes of 4 KiB on sda were counted before.
    #[test]
    fn workloads_are_the_growth_of_counters() {
        let reads = |ios| usage("sda", "read", ios, 0.0, 1e-3);
        let writes = |ios| usage("sda", "write", ios, 0.5e-3, 2e-3);
        let before = snapshot(vec![
            workload("/a", vec![reads(10), writes(2)]),
            workload("/idle", vec![reads(7)]),
            workload("/gone", vec![reads(100)]),
        ]);
        let after = snapshot(vec![
            workload("/a", vec![reads(15), writes(5), usage("sdb", "read", 4, 0.0, 1e-3)]),
            workload("/idle", vec![reads(7)]),
            workload("/new", vec![reads(30)]),
        ]);
        let [sda, sdb] = between(&before, &after);
        assert_eq!(sda, [row("/new", 30, 30 * 4096, 30), row("/a", 8, 8 * 4096, 11)]);
        assert_eq!(sdb, [row("/a", 4, 4 * 4096, 4)]);
        let window = Window::between(&before, &after);
        let first = &window.devices[0].workloads.as_ref().unwrap()[0];
        assert!((first.share - 30.0 / 41.0).abs() < 1e-9);
        assert_eq!(between(&after, &after), [vec![], vec![]]);
    }

    #[test]
    fn counts_from_zero_after_a_reset() {
        let reads = |ios| vec![usage("sda", "read", ios, 0.0, 1e-3)];
        let expected = |ios| vec![row("/a", ios, ios * 4096, ios)];
        let before = snapshot(vec![workload("/a", reads(10))]);
        assert_eq!(between(&before, &snapshot(vec![workload("/a", reads(9))]))[0], expected(9));
        let mut later = snapshot(vec![workload("/a", reads(12))]);
        assert_eq!(between(&before, &later)[0], expected(2));
        // Reset the workload, the device and the daemon in turn.
        if let Some(workloads) = &mut later.workloads {
            workloads[0].since += Duration::from_secs(1);
        }
        assert_eq!(between(&before, &later)[0], expected(12));
        let mut later = snapshot(vec![workload("/a", reads(12))]);
        later.devices[0].since += Duration::from_secs(1);
        assert_eq!(between(&before, &later)[0], expected(12));
        let mut later = snapshot(vec![workload("/a", reads(12))]);
        later.started += Duration::from_secs(1);
        assert_eq!(between(&before, &later)[0], expected(12));
    }

    /// Without a dispatch timestamp, shares are based on the time in queue and device together.
    #[test]
    fn shares_total_time_without_a_dispatch_timestamp() {
        let unsplit =
            |ios| WorkloadUsage { queue_ns: 0, device_ns: 0, ..usage("sda", "read", ios, 1e-3, 1e-3) };
        let mut after = snapshot(vec![workload("/a", vec![unsplit(1)]), workload("/b", vec![unsplit(3)])]);
        after.devices[0].phases = [false, false, false, true];
        let window = Window::between(&snapshot(vec![]), &after);
        let workloads = window.devices[0].workloads.as_ref().unwrap();
        let found: Vec<_> = workloads.iter().map(|w| (w.name.as_str(), w.share)).collect();
        assert_eq!(found, [("/b", 0.75), ("/a", 0.25)]);
    }

    #[test]
    fn an_old_daemon_has_no_workloads() {
        let after = Snapshot { workloads: None, ..snapshot(vec![]) };
        let window = Window::between(&snapshot(vec![]), &after);
        assert!(window.devices.iter().all(|device| device.workloads.is_none()));
    }
}
