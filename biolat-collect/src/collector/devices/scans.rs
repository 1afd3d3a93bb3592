//! Scans sysfs for devices, and reads attributes that change without a uevent. If a read blocks, the known devices stay
//! unchanged.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use biolat_model::device::Device;
use biolat_probe::Probe;

use super::{
    super::{series_store::SeriesStore, sysfs_thread::SysfsThread, volumes::MeasureVolumes},
    Devices, KnownDevice,
};
use crate::device::{
    diskstats::DiskStats,
    nvme_events::{self, NvmeEvent},
    paths, scan_volumes, scan_with_stacks, sysfs,
};

/// Interval between scans when there are no uevents.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);

impl Devices {
    pub(in crate::collector) fn is_scan_due(&self) -> bool {
        self.scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL)
    }

    /// Scans the devices now. If that blocks, the known devices stay unchanged, and the next scan applies the late result.
    pub(in crate::collector) fn scan(
        &mut self,
        sysfs: &mut SysfsThread,
        store: &mut SeriesStore,
        probe: &mut Probe,
    ) -> Result<()> {
        self.apply_scan(store, probe)?;
        let (host, ids) = (self.host.clone(), self.ids);
        let with_volumes = self.measure_volumes != MeasureVolumes::Off;
        let known: BTreeMap<_, _> =
            self.known.iter().map(|(&id, known)| (id, known.device.clone())).collect();
        let scanned = Arc::clone(&self.scan_result);
        sysfs.read(move || {
            let began = Instant::now();
            let drives = scan_with_stacks(&host, ids, |id| known.get(&id));
            let volumes = with_volumes.then(|| scan_volumes(&host, ids).context("cannot list the volumes"));
            *scanned.lock().unwrap_or_else(PoisonError::into_inner) = Some((began, drives, volumes));
        });
        self.apply_scan(store, probe)?;
        self.scanned = Some(Instant::now());
        Ok(())
    }

    /// Returns the shown volumes. From now on, scans also look for volumes.
    pub(in crate::collector) fn begin_volumes(&mut self, choice: MeasureVolumes) -> Result<Vec<Device>> {
        self.measure_volumes = choice;
        let found = scan_volumes(&self.host, self.ids).context("cannot list the volumes")?;
        Ok(choice.shown(&self.selection, found))
    }

    /// Applies the result of a scan, if one has finished.
    fn apply_scan(&mut self, store: &mut SeriesStore, probe: &mut Probe) -> Result<()> {
        let found = self.scan_result.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((began, drives, volumes)) = found else { return Ok(()) };
        // After an error, the next collection scans again.
        self.scanned = None;
        self.found_volumes = match volumes.transpose() {
            Ok(found) => found.map(|found| self.measure_volumes.shown(&self.selection, found)),
            Err(error) => {
                log::warn!("{error:#}");
                None
            }
        };
        self.reconcile(drives?, store, probe)?;
        self.known_scan_began = began;
        Ok(())
    }

    /// Reads the disk statistics of the shown devices. Must be called before the counters are read: see
    /// [`audit`](super::super::audit). A device that has just disappeared has none; the next scan removes it.
    pub(in crate::collector) fn read_diskstats(
        &mut self,
        sysfs: &mut SysfsThread,
    ) -> BTreeMap<u64, DiskStats> {
        self.read_attributes(sysfs);
        let mut diskstats = BTreeMap::new();
        for (&id, known) in self.known.iter().filter(|(_, known)| known.shown) {
            match DiskStats::read(&self.host.sysfs, &known.device) {
                Ok(read) => {
                    diskstats.insert(id, read);
                }
                Err(_) => self.scanned = None,
            }
        }
        diskstats
    }

    fn read_attributes(&mut self, thread: &mut SysfsThread) {
        let wanted = |(id, known): (u64, &KnownDevice)| {
            let KnownDevice { device, nvme_events, .. } = known;
            (id, device.name.clone(), device.path.is_some(), nvme_events.to_read(device))
        };
        let devices: Vec<_> = self.shown().map(wanted).collect();
        let root = self.host.sysfs.clone();
        let read = move || {
            let attributes = |(id, name, is_path, events): (u64, String, bool, Vec<NvmeEvent>)| {
                let state = is_path.then(|| paths::state(&root, &name));
                let events = nvme_events::read(&root, &name, &events);
                (id, sysfs::iostats_enabled(&root, &name).ok(), state, events)
            };
            devices.into_iter().map(attributes).collect::<Vec<_>>()
        };
        for (id, iostats, state, events) in thread.read(read).unwrap_or_default() {
            let Some(KnownDevice { device, nvme_events, .. }) = self.known.get_mut(&id) else { continue };
            device.iostats = iostats.unwrap_or(device.iostats);
            if let (Some(path), Some(state)) = (&mut device.path, state) {
                path.state = state;
            }
            nvme_events.update(&events);
        }
    }
}
