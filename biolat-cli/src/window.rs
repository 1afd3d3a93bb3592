//! The I/O between two snapshots: the growth of their cumulative counters.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::AddAssign,
};

use biolat_common::series::{PHASES, Phase};
use biolat_model::{
    device::{Device, Group, Holder, Volume},
    histogram::Histogram,
    name::Name,
    period::Period,
    saturating,
    snapshot::{DeviceView, Inflight, SeriesView, SlowIo, Snapshot, TagWaits, WorkloadView},
    text::{format, time::unix_seconds},
};

use super::{
    sizes::SizeWindow,
    workloads::{self, CgroupWindow, WorkloadWindow},
};

/// The I/O between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Window {
    /// End, in seconds since the epoch.
    pub(super) ended: f64,
    /// Length in seconds.
    pub(super) seconds: f64,
    /// Whether the daemon was restarted during the window. The window then starts at the restart.
    pub(super) restarted: bool,
    /// The drives at its end in order of name, including idle ones.
    pub(super) devices: Vec<DeviceWindow>,
    /// The volumes. Their I/Os are also counted on the drives below.
    pub(super) volumes: Vec<DeviceWindow>,
    /// The workloads, on all devices; empty for a history.
    pub(super) cgroups: Vec<CgroupWindow>,
    /// Names of devices that were removed during the window; their I/O in it is unknown.
    pub(super) gone: Vec<String>,
    /// Lost completions of all devices by reason, without zeros.
    pub(super) lost: BTreeMap<Name, u64>,
    /// Failed collections. Their I/O is in the next successful one.
    pub(super) failures: u64,
    /// The recorded slow and failed I/Os: of a history the slowest ten, of a daemon none.
    pub(super) slow: Vec<SlowIo>,
}

/// The I/O of one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct DeviceWindow {
    /// Kernel name.
    pub(super) name: String,
    /// Model reported by the drive, or what a volume is; empty if there is neither.
    pub(super) model: String,
    /// `None` for a drive.
    pub(super) volume: Option<Volume>,
    /// Whether it is a rotating disk.
    pub(super) rotational: bool,
    /// Devices stacked directly on it: dm and md.
    pub(super) holders: Vec<String>,
    /// Devices stacked on it at any depth, nearest first, with the depth.
    pub(super) above: Vec<(String, u32)>,
    /// Names of the persistent volumes on it, with their depth.
    pub(super) claimed: BTreeMap<String, u32>,
    /// Whether the latency of each phase is recorded, in the order of [`Phase`].
    pub(super) phases: [bool; PHASES],
    /// Which latencies are missing, and the command that enables them; empty if none are missing.
    pub(super) hint: String,
    /// I/Os in flight at the end of the window.
    pub(super) inflight: Inflight,
    /// Waits for a free tag. `None` if they are not counted: before Linux 7.3, for volumes and in a history.
    pub(super) tag_waits: Option<TagWaits>,
    /// All ops, including idle ones.
    pub(super) ops: Vec<OpWindow>,
    /// Missed completions by group of ops, without zeros.
    pub(super) unseen: BTreeMap<Group, u64>,
    /// Completed requests per CPU. `None` before the first, or from an older daemon.
    pub(super) completions: Option<Vec<u64>>,
    /// The I/O of each workload, largest share of the device's time first. `None` if the daemon does not count workloads.
    pub(super) workloads: Option<Vec<WorkloadWindow>>,
}

/// The I/O of one op on a device.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OpWindow {
    /// Kernel name, in lower case.
    pub(super) name: String,
    /// Figures of all sizes.
    pub(super) figures: Figures,
    /// Figures by size. `None` if the daemon does not count sizes.
    pub(super) sizes: Option<SizeWindow>,
}

/// Figures that can be summed over ops and devices.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures {
    /// Bytes transferred.
    pub(super) bytes: u64,
    /// Failed completions by status, without zeros.
    pub(super) errors: BTreeMap<Name, u64>,
    /// Latencies, in the order of [`Phase`].
    pub(super) histograms: [Histogram; PHASES],
}

impl Window {
    /// The window between two snapshots of one daemon. A new device counts from zero, and after a restart everything does; a
    /// removed device is left out.
    pub(super) fn between(before: &Snapshot, after: &Snapshot) -> Self {
        let restarted = before.started != after.started;
        let is_same = |one: &DeviceView, other: &DeviceView| {
            one.device.name == other.device.name && one.since == other.since
        };
        let counted = |device: &DeviceView| {
            if restarted { None } else { before.devices.iter().find(|had| is_same(had, device)) }
        };
        let is_continued = |device: &&DeviceView| counted(device).is_some();
        let continued =
            after.devices.iter().filter(is_continued).map(|view| view.device.name.as_str()).collect();
        let had = before.workloads.as_deref().unwrap_or_default();
        let workloads =
            after.workloads.as_ref().map(|workloads| workloads::by_device(had, workloads, &continued));
        let had = if restarted { &[] } else { had };
        let cgroups = workloads::by_cgroup(had, after.workloads.as_deref().unwrap_or_default());
        let is_there = |had: &DeviceView| after.devices.iter().any(|view| is_same(view, had));
        let gone = before.devices.iter().filter(|had| !restarted && !is_there(had));
        let lost = if restarted { &BTreeMap::new() } else { &before.lost };
        let failures = if restarted { 0 } else { before.health.failures };
        let recorded = before.slow.last().filter(|_| !restarted).map_or(0, |io| io.number);
        Self {
            ended: unix_seconds(after.taken),
            seconds: seconds(before, after, restarted),
            restarted,
            devices: since(counted, after.drives(), workloads),
            volumes: since(counted, after.volumes(), None),
            cgroups,
            gone: gone.map(|view| view.device.name.clone()).collect(),
            lost: grown(lost, &after.lost),
            failures: after.health.failures.saturating_sub(failures),
            slow: after.slow.iter().filter(|io| io.number > recorded).cloned().collect(),
        }
    }

    /// The window of a period of a history.
    pub(super) fn of_period(period: &Period) -> Self {
        Self {
            ended: unix_seconds(period.ended),
            seconds: period.length.as_secs_f64(),
            restarted: false,
            devices: from_zero(
                period.devices.iter().filter(|view| !view.device.is_volume()),
                period.workloads.as_deref(),
            ),
            volumes: from_zero(period.devices.iter().filter(|view| view.device.is_volume()), None),
            cgroups: Vec::new(),
            gone: Vec::new(),
            lost: period.lost.clone(),
            failures: period.failures,
            slow: period.slow.clone(),
        }
    }

    /// Everything that a snapshot has counted, regardless of when.
    pub(super) fn until(after: &Snapshot) -> Self {
        Self {
            devices: from_zero(after.drives(), after.workloads.as_deref()),
            volumes: from_zero(after.volumes(), None),
            ..Self::default()
        }
    }

    /// The drives, each followed by the volumes on it, with their depth: 0 for a drive, or a volume on none that is
    /// shown; these come last. A volume on several drives is listed once.
    pub(super) fn layers(&self) -> Vec<(&DeviceWindow, u32)> {
        let mut left: Vec<_> = self.volumes.iter().collect();
        let mut layers = Vec::with_capacity(self.devices.len() + left.len());
        for device in &self.devices {
            layers.push((device, 0));
            for (name, depth) in &device.above {
                let place = left.iter().position(|volume| volume.name == *name);
                layers.extend(place.map(|place| (left.remove(place), *depth)));
            }
        }
        layers.extend(left.into_iter().map(|volume| (volume, 0)));
        layers
    }

    /// The sum over all drives and ops.
    pub(super) fn all(&self) -> Figures {
        sum(self.devices.iter().flat_map(|device| &device.ops).map(|op| &op.figures))
    }

    /// Its length, and the reason if a restart shortened it.
    pub(super) fn length(&self) -> String {
        let since = if self.restarted { " since the restart of biolat" } else { "" };
        format!("{}{since}", format::duration(self.seconds))
    }

    /// Converts a count to a rate per second.
    pub(super) fn rate(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }
}

/// The window of each device since an earlier view of it.
fn since<'a, 'b>(
    before: impl Fn(&DeviceView) -> Option<&'a DeviceView>,
    after: impl Iterator<Item = &'b DeviceView>,
    mut workloads: Option<BTreeMap<&str, Vec<WorkloadWindow>>>,
) -> Vec<DeviceWindow> {
    let windows = after.map(|view| {
        let of_device =
            workloads.as_mut().map(|all| all.remove(view.device.name.as_str()).unwrap_or_default());
        DeviceWindow::since(before(view), view, of_device)
    });
    windows.collect()
}

fn from_zero<'a>(
    devices: impl Iterator<Item = &'a DeviceView>,
    workloads: Option<&[WorkloadView]>,
) -> Vec<DeviceWindow> {
    let workloads = workloads.map(|workloads| workloads::by_device(&[], workloads, &BTreeSet::new()));
    since(|_| None, devices, workloads)
}

/// Length in seconds. If the clock of the snapshots was set back, it is estimated from the number of collections.
fn seconds(before: &Snapshot, after: &Snapshot, restarted: bool) -> f64 {
    if restarted {
        return after.taken.duration_since(after.started).unwrap_or_default().as_secs_f64();
    }
    let by_clock = after.taken.duration_since(before.taken).unwrap_or_default();
    if !by_clock.is_zero() {
        return by_clock.as_secs_f64();
    }
    let collections = after.health.durations.count().saturating_sub(before.health.durations.count());
    collections as f64 * after.interval.as_secs_f64()
}

impl DeviceWindow {
    fn since(
        before: Option<&DeviceView>,
        after: &DeviceView,
        workloads: Option<Vec<WorkloadWindow>>,
    ) -> Self {
        let op = |op: &SeriesView| {
            let before = before.and_then(|device| device.series.iter().find(|had| had.op == op.op));
            let had = before.and_then(|op| op.sizes.as_ref());
            OpWindow {
                name: op.op.clone(),
                figures: Figures::since(before, op),
                sizes: op.sizes.as_ref().map(|sizes| SizeWindow::since(had, sizes)),
            }
        };
        let completed = |(cpu, count): (usize, &u64)| {
            count.saturating_sub(
                before.and_then(|view| view.spread.completions.get(cpu)).copied().unwrap_or_default(),
            )
        };
        let had = |group: &Group| before.and_then(|view| view.unseen.get(group)).copied().unwrap_or_default();
        let unseen = after.unseen.iter().map(|(group, count)| (*group, count.saturating_sub(had(group))));
        let completions = &after.spread.completions;
        let Device { name, volume, stack, .. } = &after.device;
        let is_device =
            |holder: &&Holder| !matches!(holder.kind.as_str(), "mount" | Holder::PERSISTENT_VOLUME);
        Self {
            name: name.clone(),
            model: after.device.description(),
            volume: volume.clone(),
            above: stack
                .iter()
                .filter(is_device)
                .map(|holder| (holder.device.clone(), holder.depth))
                .collect(),
            rotational: after.device.rotational,
            holders: after.device.holders.clone(),
            claimed: persistent_volumes(&after.device),
            phases: after.phases,
            hint: after.lacks.clone(),
            inflight: after.inflight,
            tag_waits: after
                .tag_waits
                .map(|now| now.since(&before.and_then(|device| device.tag_waits).unwrap_or_default())),
            ops: after.series.iter().map(op).collect(),
            unseen: unseen.filter(|(_, count)| *count > 0).collect(),
            completions: (!completions.is_empty())
                .then(|| completions.iter().enumerate().map(completed).collect()),
            workloads: workloads
                .map(|workloads| workloads::ranked(workloads, after.phases[Phase::Device as usize])),
        }
    }

    /// The sum over all ops.
    pub(super) fn all(&self) -> Figures {
        sum(self.ops.iter().map(|op| &op.figures))
    }

    /// Whether the latency of a phase is recorded.
    pub(super) fn has(&self, phase: Phase) -> bool {
        self.phases[phase as usize]
    }
}

/// The persistent volumes on a device. A volume can be at several depths: then the smallest.
fn persistent_volumes(device: &Device) -> BTreeMap<String, u32> {
    let mut volumes = BTreeMap::new();
    for holder in device.stack.iter().filter(|holder| holder.kind == Holder::PERSISTENT_VOLUME) {
        volumes.entry(holder.name.clone()).or_insert(holder.depth);
    }
    volumes
}

impl Figures {
    fn since(before: Option<&SeriesView>, after: &SeriesView) -> Self {
        const NONE: &[Histogram; PHASES] = &[const { Histogram::new() }; PHASES];
        let (had, has) = (before.map_or(NONE, |op| &op.histograms), &after.histograms);
        Self {
            bytes: after.bytes.saturating_sub(before.map_or(0, |op| op.bytes)),
            errors: grown(before.map_or(&BTreeMap::new(), |op| &op.errors), &after.errors),
            histograms: std::array::from_fn(|phase| has[phase].since(&had[phase])),
        }
    }

    /// The latencies of a phase.
    pub(super) fn of(&self, phase: Phase) -> &Histogram {
        &self.histograms[phase as usize]
    }

    /// Number of I/Os: each has a total latency.
    pub(super) fn ios(&self) -> u64 {
        self.of(Phase::Total).count()
    }

    /// Failed completions of any status.
    pub(super) fn failed(&self) -> u64 {
        saturating::sum(self.errors.values())
    }

    /// Admission's share of admission and total latency. `None` without latencies.
    pub(super) fn admission_share(&self) -> Option<f64> {
        let (wait, total) = (self.of(Phase::Admission).mean()?, self.of(Phase::Total).mean()?);
        (wait + total > 0.0).then(|| wait / (wait + total))
    }

    /// The queue's share of the total latency, for I/Os with both phases. `None` if there are none.
    pub(super) fn queue_share(&self) -> Option<f64> {
        let (queue, device) = (self.of(Phase::Queue).sum_seconds(), self.of(Phase::Device).sum_seconds());
        (queue + device > 0.0).then(|| queue / (queue + device))
    }
}

impl AddAssign<&Self> for Figures {
    fn add_assign(&mut self, other: &Self) {
        saturating::add(&mut self.bytes, other.bytes);
        saturating::add_named(&mut self.errors, &other.errors);
        for (histogram, other) in self.histograms.iter_mut().zip(&other.histograms) {
            histogram.add(other);
        }
    }
}

fn sum<'a>(figures: impl Iterator<Item = &'a Figures>) -> Figures {
    figures.fold(Figures::default(), |mut sum, figures| {
        sum += figures;
        sum
    })
}

/// Growth of counters, without those that did not grow.
fn grown(before: &BTreeMap<Name, u64>, after: &BTreeMap<Name, u64>) -> BTreeMap<Name, u64> {
    let had = |name| before.get(name).copied().unwrap_or_default();
    let grown = after.iter().map(|(name, count)| (name.clone(), count.saturating_sub(had(name))));
    grown.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use biolat_common::series::Phase;
    use biolat_model::{
        device::Group,
        snapshot::{SeriesView, Snapshot},
    };
    use biolat_testing::samples::{at, device, histogram, op, slow_io, snapshot};

    use super::Window;

    /// 10 reads, then 15: 5 new ones, 3 of them in a bucket that was empty.
    #[test]
    fn window_is_the_growth_of_counters() {
        let read = |buckets: &[(i32, u64)], seconds, bytes| {
            let total = histogram(0, buckets, 0, seconds);
            op("read", bytes, histogram(0, &[], 0, 0.0), histogram(0, &[], 0, 0.0), total)
        };
        let mut before = snapshot(100.0, vec![device("sda", 50.0, vec![read(&[(-80, 10)], 0.01, 4096)])]);
        let mut after = snapshot(
            105.5,
            vec![device("sda", 50.0, vec![read(&[(-80, 12), (-60, 3)], 0.04, 40960), op_write()])],
        );
        after.devices[0].series[0].errors.insert("medium".into(), 2);
        after.devices[0].unseen.insert(Group::Read, 7);
        after.lost.insert("passthrough".into(), 3);
        let ios =
            |numbers: std::ops::RangeInclusive<u64>| numbers.map(|number| slow_io(number, "sda")).collect();
        (before.slow, after.slow) = (ios(1..=3), ios(2..=5));
        let window = Window::between(&before, &after);
        assert_eq!((window.seconds, window.ended, window.restarted), (5.5, 105.5, false));
        let figures = window.all();
        assert_eq!((figures.ios(), figures.bytes, figures.failed()), (5 + 1, 36864 + 512, 2));
        let total = window.devices[0].ops[0].figures.of(Phase::Total);
        assert_eq!(total.buckets, [(-80, 2), (-60, 3)]);
        assert_eq!(total.sum_ns, 30_000_000);
        assert_eq!(window.devices[0].unseen[&Group::Read], 7);
        assert_eq!(window.lost["passthrough"], 3);
        assert_eq!(window.lost.len(), 1);
        assert_eq!(window.slow.iter().map(|io| io.number).collect::<Vec<_>>(), [4, 5]);
        assert!((window.rate(figures.ios()) - 6.0 / 5.5).abs() < 1e-9);
        assert_eq!(window.devices[0].ops[1].figures.bytes, 512);
        let nothing = Window::between(&after, &after);
        assert_eq!((nothing.all().ios(), nothing.lost.len(), nothing.rate(3)), (0, 0, 0.0));
    }

    fn op_write() -> SeriesView {
        let one = || histogram(0, &[(-70, 1)], 0, 0.002);
        op("write", 512, one(), one(), one())
    }

    fn of(devices: &[(&str, f64, u64)]) -> Snapshot {
        let device = |&(name, since, count): &(&str, f64, u64)| {
            let total = histogram(0, &[(-80, count)], 0, 0.0);
            device(name, since, vec![op("read", 0, histogram(0, &[], 0, 0.0), total.clone(), total)])
        };
        snapshot(100.0, devices.iter().map(device).collect())
    }

    #[test]
    fn counts_new_devices_from_zero_and_omits_removed_ones() {
        let before = of(&[("old", 1.0, 10), ("same", 1.0, 10), ("replaced", 1.0, 10)]);
        let after = of(&[("new", 99.0, 3), ("replaced", 98.0, 11), ("same", 1.0, 14)]);
        let window = Window::between(&before, &after);
        let found: Vec<_> = window.devices.iter().map(|d| (d.name.as_str(), d.all().ios())).collect();
        assert_eq!(found, [("new", 3), ("replaced", 11), ("same", 4)]);
    }

    #[test]
    fn a_restart_counts_from_zero() {
        let mut before = of(&[("sda", 1.0, 10)]);
        before.lost.insert("clock".into(), 9);
        let mut after = of(&[("sda", 1.0, 7)]);
        after.lost.insert("clock".into(), 1);
        (after.started, after.taken) = (at(103.0), at(105.0));
        let window = Window::between(&before, &after);
        assert!(window.restarted);
        assert_eq!((window.seconds, window.all().ios(), window.lost["clock"]), (2.0, 7, 1));
    }

    #[test]
    fn estimates_the_length_if_the_clock_was_set_back() {
        let (before, mut after) = (of(&[]), of(&[]));
        after.taken = at(40.0);
        after.health.durations.zero += 3;
        assert_eq!(Window::between(&before, &after).seconds, 15.0);
    }

    #[test]
    fn queue_share_only_covers_ios_with_both_phases() {
        let figures = |queue, device| {
            let one = |seconds| histogram(0, &[(-70, 1)], 0, seconds);
            let ops = vec![op("read", 0, one(queue), one(device), one(queue + device))];
            Window::between(&of(&[]), &snapshot(1.0, vec![super::tests::device("sda", 99.0, ops)])).all()
        };
        assert_eq!(figures(0.3, 0.1).queue_share(), Some(0.3 / 0.4));
        assert_eq!(figures(0.0, 0.1).queue_share(), Some(0.0));
        assert_eq!(figures(0.0, 0.0).queue_share(), None);
    }
}
