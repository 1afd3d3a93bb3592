//! The volumes: devices that have bios instead of requests. Separate programs measure them, except NVMe multipath devices, which
//! are the sum of their paths.

mod head;

use std::{collections::BTreeMap, time::SystemTime};

use anyhow::Result;
use biolat_common::{
    bucket::CELLS,
    status,
    volumes::{GROUPS, VolumeCounters},
};
use biolat_model::{
    device::{Device, Group, Selection},
    histogram::Histogram,
    name::Name,
    snapshot::{DeviceView, SeriesView, Snapshot},
};
use biolat_probe::{VolumeLosses, VolumeProbe};
use biolat_system::host::Host;

use super::{sysfs_thread::SysfsThread, totals::errors_by_name};
use crate::device::{
    diskstats::DiskStats,
    nvme_events::{self, NvmeEvent, NvmeEvents},
};
use head::HeadTotals;

/// Number of I/Os in the disk statistics after which a volume without a single counted I/O is one that cannot be measured.
const SILENT_IOS: u64 = 16;

/// Whether volumes are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeasureVolumes {
    /// If the kernel has what is needed, and without RAM disks.
    Auto,
    /// With RAM disks; it is an error if the kernel lacks what is needed.
    On,
    Off,
}

impl MeasureVolumes {
    /// Returns the volumes to measure.
    #[must_use]
    pub fn shown(self, selection: &Selection, mut found: Vec<Device>) -> Vec<Device> {
        found.retain(|Device { name, .. }| {
            let is_asked_for = self == Self::On && selection.leaves_out(name) && !selection.excludes(name);
            self != Self::Off && (selection.shows(name) || is_asked_for)
        });
        found
    }
}

pub(super) struct Volumes {
    /// `None` if volumes are not measured.
    probe: Option<VolumeProbe>,
    known: BTreeMap<u64, KnownVolume>,
}

struct KnownVolume {
    device: Device,
    since: SystemTime,
    /// I/Os that had started when the measurement began, according to the disk statistics. `None` if it has none.
    started_before: Option<u64>,
    figures: Figures,
    nvme_events: NvmeEvents,
}

enum Figures {
    OfBios(Box<[VolumeTotals; GROUPS as usize]>),
    OfPaths(HeadTotals),
    /// It could not be measured; the next scan tries again.
    None,
    /// The kernel does not report its I/O.
    Silent,
}

/// Totals of a volume and a group.
#[derive(Clone)]
struct VolumeTotals {
    last: VolumeCounters,
    bytes: u64,
    total_ns: u128,
    errors: [u64; status::STATUSES],
    cells: [u64; CELLS],
}

impl VolumeTotals {
    const ZERO: Self = Self {
        last: VolumeCounters::ZERO,
        bytes: 0,
        total_ns: 0,
        errors: [0; status::STATUSES],
        cells: [0; CELLS],
    };

    /// Adds the growth since the last reading.
    fn update(&mut self, now: VolumeCounters) {
        let VolumeCounters { bytes, total_ns, errors, padding: _, cells } = &now;
        self.bytes += bytes.wrapping_sub(self.last.bytes);
        self.total_ns += u128::from(total_ns.wrapping_sub(self.last.total_ns));
        let add =
            |((total, now), last): ((&mut u64, &u32), &u32)| *total += u64::from(now.wrapping_sub(*last));
        self.errors.iter_mut().zip(errors).zip(&self.last.errors).for_each(add);
        self.cells.iter_mut().zip(cells).zip(&self.last.cells).for_each(add);
        self.last = now;
    }

    fn ios(&self) -> u64 {
        self.cells.iter().sum()
    }

    fn view(&self, group: Group, statuses_since_6_10: bool) -> SeriesView {
        let total = Histogram::from_cells(self.cells.iter().copied(), self.total_ns);
        SeriesView {
            op: group.name().to_owned(),
            bytes: self.bytes,
            histograms: [Histogram::new(), Histogram::new(), Histogram::new(), total],
            errors: errors_by_name(&self.errors, statuses_since_6_10),
            ..SeriesView::default()
        }
    }
}

impl Volumes {
    pub(super) fn new(probe: Option<VolumeProbe>) -> Self {
        Self { probe, known: BTreeMap::new() }
    }

    /// Begins to measure volumes that are new, and stops measuring those that are gone. A volume that cannot be measured is not
    /// shown, and drives are measured all the same.
    pub(super) fn reconcile(&mut self, host: &Host, found: Vec<Device>) {
        let Some(probe) = &mut self.probe else { return };
        let gone = |known: &KnownVolume| {
            !found.iter().any(|device| device.id == known.device.id && device.inode == known.device.inode)
        };
        let gone: Vec<u64> = self.known.iter().filter(|(_, known)| gone(known)).map(|(&id, _)| id).collect();
        for id in gone {
            stop(probe, id);
            if let Some(known) = self.known.remove(&id) {
                log::info!("volume {} is gone", name(&known.device));
            }
        }
        for device in found {
            let known = self.known.get_mut(&device.id);
            let is_retry = known.is_some();
            if let Some(known) = known.filter(|known| !matches!(known.figures, Figures::None)) {
                known.device = device;
                continue;
            }
            let started_before = started(host, &device);
            let figures = if device.is_multipath_head() {
                Ok(Figures::OfPaths(HeadTotals::default()))
            } else {
                let groups = || Box::new([const { VolumeTotals::ZERO }; GROUPS as usize]);
                probe.measure(device.id).map(|()| Figures::OfBios(groups()))
            };
            let figures = match figures {
                Ok(figures) => {
                    log::info!("measuring volume {}", name(&device));
                    figures
                }
                Err(error) => {
                    if !is_retry {
                        log::warn!("volume {} is not measured: {error:#}", name(&device));
                    }
                    Figures::None
                }
            };
            let known = KnownVolume {
                since: SystemTime::now(),
                started_before,
                figures,
                nvme_events: NvmeEvents::default(),
                device,
            };
            self.known.insert(known.device.id, known);
        }
    }

    /// Size of the counters in bytes.
    pub(super) fn map_bytes(&self) -> u64 {
        self.probe.as_ref().map_or(0, VolumeProbe::bytes)
    }

    /// Reads the counters. A volume whose counters cannot be read is begun again by the next scan.
    pub(super) fn read(&mut self, host: &Host, sysfs: &mut SysfsThread) {
        self.read_nvme_events(host, sysfs);
        let Some(probe) = &mut self.probe else { return };
        for (&id, known) in &mut self.known {
            let Figures::OfBios(groups) = &mut known.figures else { continue };
            let read = (0..).zip(groups.iter_mut()).try_for_each(|(group, totals)| {
                probe.read(id, group).map(|counters| totals.update(counters))
            });
            if let Err(error) = read {
                log::warn!("volume {} is not measured: {error:#}", name(&known.device));
                stop(probe, id);
                known.figures = Figures::None;
                continue;
            }
            let ended = || completions(host, &known.device);
            let is_silent = groups.iter().all(|totals| totals.ios() == 0)
                && known.started_before.is_some_and(|before| ended().saturating_sub(before) >= SILENT_IOS);
            if is_silent {
                log::warn!(
                    "volume {} is not measured: this kernel does not report the end of its I/Os",
                    name(&known.device)
                );
                stop(probe, id);
                known.figures = Figures::Silent;
            }
        }
    }

    fn read_nvme_events(&mut self, host: &Host, sysfs: &mut SysfsThread) {
        let wanted = |(&id, known): (&u64, &KnownVolume)| {
            let events = known.nvme_events.to_read(&known.device);
            (!events.is_empty()).then(|| (id, known.device.name.clone(), events))
        };
        let heads: Vec<_> = self.known.iter().filter_map(wanted).collect();
        if heads.is_empty() {
            return;
        }
        let root = host.sysfs.clone();
        let read = move || {
            let counts = |(id, name, events): (u64, String, Vec<NvmeEvent>)| {
                (id, nvme_events::read(&root, &name, &events))
            };
            heads.into_iter().map(counts).collect::<Vec<_>>()
        };
        for (id, events) in sysfs.read(read).unwrap_or_default() {
            if let Some(known) = self.known.get_mut(&id) {
                known.nvme_events.update(&events);
            }
        }
    }

    /// Adds the volumes, ordered by name, and their losses to a snapshot of the drives.
    pub(super) fn add_to(&mut self, snapshot: &mut Snapshot, statuses_since_6_10: bool) {
        match self.losses() {
            Ok(losses) => snapshot.volume_losses = losses,
            Err(error) => log::debug!("cannot read the losses of volumes: {error:#}"),
        }
        let drives = &snapshot.devices;
        let mut views: Vec<_> =
            self.known.values_mut().filter_map(|known| known.view(drives, statuses_since_6_10)).collect();
        views.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        snapshot.devices.extend(views);
    }

    /// Returns the losses, by reason; empty if volumes are not measured.
    fn losses(&mut self) -> Result<BTreeMap<Name, u64>> {
        let Some(probe) = &mut self.probe else { return Ok(BTreeMap::new()) };
        let VolumeLosses { evicted, refused } = probe.losses()?;
        match probe.attach_understudies() {
            Ok(true) => log::info!(
                "the kernel skipped {refused} runs of the volume programs because they were already running on that CPU: a second \
                 pair now counts these I/Os"
            ),
            Ok(false) => {}
            Err(error) => {
                log::warn!("I/Os of volumes for which the kernel refuses a run are lost: {error:#}")
            }
        }
        Ok(BTreeMap::from([("evicted".into(), evicted), ("recursion".into(), refused)]))
    }
}

impl KnownVolume {
    /// Returns the volume's figures. `None` if it is not measured.
    fn view(&mut self, drives: &[DeviceView], statuses_since_6_10: bool) -> Option<DeviceView> {
        let series = match &mut self.figures {
            Figures::OfBios(groups) => {
                let groups = Group::ALL.into_iter().zip(groups.iter());
                let shown = groups.filter(|(group, totals)| *group != Group::Discard || totals.ios() > 0);
                shown.map(|(group, totals)| totals.view(group, statuses_since_6_10)).collect()
            }
            Figures::OfPaths(totals) => {
                let name = Some(self.device.name.as_str());
                let paths = drives.iter().filter(|view| view.device.path_of.as_deref() == name);
                totals.update(self.since, paths);
                if totals.is_empty() {
                    return None;
                }
                totals.series()
            }
            Figures::None | Figures::Silent => return None,
        };
        Some(DeviceView {
            device: self.device.clone(),
            since: self.since,
            phases: [false, false, false, true],
            series,
            nvme_events: self.nvme_events.view(),
            ..DeviceView::default()
        })
    }
}

/// The kernel name of a volume and, if it has another one, its label.
fn name(device: &Device) -> String {
    match &device.volume {
        Some(volume) if volume.label != device.name => format!("{} ({})", device.name, volume.label),
        _ => device.name.clone(),
    }
}

fn completions(host: &Host, device: &Device) -> u64 {
    DiskStats::read(&host.sysfs, device).map_or(0, |stats| stats.completions())
}

fn started(host: &Host, device: &Device) -> Option<u64> {
    let stats = DiskStats::read(&host.sysfs, device).ok()?;
    Some(stats.completions() + stats.in_flight())
}

fn stop(probe: &mut VolumeProbe, id: u64) {
    if let Err(error) = probe.remove(id) {
        log::warn!("cannot stop measuring a volume: {error:#}");
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::volumes::{VolumeCounters, group};
    use biolat_model::device::Group;

    use super::VolumeTotals;

    #[test]
    fn groups_are_those_of_the_disk_statistics() {
        let ops = [
            (0, "read"),
            (1, "write"),
            (2, "read_all"),
            (3, "discard"),
            (5, "secure_erase"),
            (9, "write_zeroes"),
        ];
        for (op, name) in ops {
            assert_eq!(Some(Group::ALL[group(op, 3) as usize]), Group::of(op, name, false), "{name}");
        }
        let name = |op| Group::ALL[group(op, 3) as usize].name();
        assert_eq!([0, 1, 2, 3, 5, 9].map(name), ["read", "write", "read", "discard", "write", "write"]);
    }

    #[test]
    fn totals_grow_across_a_wrap_of_the_counters() {
        let mut totals = VolumeTotals::ZERO;
        let mut counters = VolumeCounters { bytes: 4096, total_ns: 70_000, ..VolumeCounters::ZERO };
        counters.cells[100] = u32::MAX;
        counters.errors[10] = 1;
        totals.update(counters);
        counters.cells[100] = 4;
        counters.bytes = 8192;
        totals.update(counters);
        let view = totals.view(Group::Write, true);
        assert_eq!(view.histograms[3].count(), u64::from(u32::MAX) + 5);
        assert_eq!((view.bytes, view.errors["ioerr"], view.op.as_str()), (8192, 1, "write"));
    }
}
