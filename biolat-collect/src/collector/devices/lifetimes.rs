//! Begins and ends series as devices appear and disappear, and ends the series of devices that never get a name.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_model::device::{Device, Throttling};
use biolat_probe::{Probe, abilities::Ability};

use super::{
    super::{
        series_store::{EndedSeries, SeriesStore},
        spread::Spread,
        state::record::DeviceRecord,
        tag_waits::TagWaitCounts,
    },
    Devices, GONE_DEVICES, KnownDevice,
};
use crate::device::nvme_events::NvmeEvents;

/// How long a device may be missing from sysfs after the probe has seen it.
const UNRESOLVED_TIMEOUT: Duration = Duration::from_secs(2);

/// Ends the series of a device that is gone, and its waits for a tag. `count` gets the completions of each series.
fn end_counts(id: u64, store: &mut SeriesStore, probe: &mut Probe, count: impl FnMut(u64)) -> Result<()> {
    store.end(&mut probe.maps, id, count)?;
    probe.maps.forget_tag_waits(id);
    Ok(())
}

fn log_device(device: &Device) {
    let fields: Vec<_> = [&device.name, &device.model, &device.serial]
        .into_iter()
        .map(String::as_str)
        .filter(|field| !field.is_empty())
        .collect();
    log::info!("device {}", fields.join(", "));
    if let Some(hint) = device.hint() {
        log::warn!("{hint}");
    }
}

impl Devices {
    /// Adds the devices that were found before the probe was attached.
    pub(in crate::collector) fn add_initial(
        &mut self,
        found: Vec<Device>,
        store: &mut SeriesStore,
        probe: &mut Probe,
    ) -> Result<()> {
        let hidden = found.iter().filter(|device| self.selection.leaves_out(&device.name)).count();
        if hidden > 0 {
            log::info!(
                "{hidden} loop devices or floppy disks are not shown; select them with --loop or --device"
            );
        }
        self.end_kept(&found, store, probe)?;
        self.reconcile(found, store, probe)?;
        if self.shown().next().is_none() {
            log::warn!(
                "no block devices to show yet; new ones will be shown as they appear, loop devices only with --loop"
            );
        }
        Ok(())
    }

    /// Ends the series of devices that the previous daemon knew and that no longer exist.
    fn end_kept(&mut self, found: &[Device], store: &mut SeriesStore, probe: &mut Probe) -> Result<()> {
        let is_found = |kept: &DeviceRecord| {
            found.iter().any(|device| device.id == kept.id && device.inode == kept.inode)
        };
        while let Some(place) = self.kept.iter().position(|kept| !is_found(kept)) {
            let kept = self.kept.swap_remove(place);
            end_counts(kept.id, store, probe, |_| {})?;
            if self.selection.shows(&kept.name) {
                log::info!("device {} is gone", kept.name);
            }
        }
        Ok(())
    }

    /// Adds the completions of series that ended while no daemon was running.
    pub(in crate::collector) fn add_ended(&mut self, ended: &[EndedSeries]) {
        for series in ended {
            if !self.kept.iter().any(|kept| kept.id == series.key.device()) {
                self.unresolved_completions += series.completions;
            }
        }
    }

    /// Adds the devices found by a scan, and ends the series of devices that are gone.
    pub(super) fn reconcile(
        &mut self,
        found: Vec<Device>,
        store: &mut SeriesStore,
        probe: &mut Probe,
    ) -> Result<()> {
        let is_here = |known: &KnownDevice| {
            let same = |device: &Device| device.id == known.device.id && device.inode == known.device.inode;
            found.iter().any(same)
        };
        let gone: Vec<u64> =
            self.known.iter().filter(|(_, known)| !is_here(known)).map(|(&id, _)| id).collect();
        let mut outcome = Ok(());
        for id in gone {
            match end_counts(id, store, probe, |_| {}) {
                Ok(()) => {
                    if let Some(known) = self.known.remove(&id) {
                        if known.shown {
                            log::info!("device {} is gone", known.device.name);
                        }
                        self.gone.push_back(known);
                        if self.gone.len() > GONE_DEVICES {
                            self.gone.pop_front();
                        }
                    }
                }
                // Keep the device known until its series have ended; otherwise they would belong to an unknown device. The next
                // scan will notice again that it is gone.
                Err(error) => {
                    self.scanned = None;
                    outcome = Err(error);
                }
            }
        }
        for device in found {
            self.unresolved.remove(&device.id);
            if let Some(known) = self.known.get_mut(&device.id) {
                if known.device.inode == device.inode {
                    known.device = device;
                }
                continue;
            }
            let shown = self.selection.shows(&device.name);
            if shown {
                log_device(&device);
            }
            let mut known = KnownDevice {
                shown,
                since: SystemTime::now(),
                audit: None,
                was_quiet: false,
                has_dispatch_times: device.throttling == Throttling::SetUp,
                has_submission_times: probe.kernel.has(Ability::SubmissionTimestamps),
                spread: Spread::of(store.completions(device.id)),
                nvme_events: NvmeEvents::default(),
                tag_waits: TagWaitCounts::default(),
                device,
            };
            if let Some(place) = self.kept.iter().position(|kept| kept.id == known.device.id) {
                known.continue_from(&self.kept.swap_remove(place));
            }
            self.known.insert(known.device.id, known);
        }
        outcome
    }

    /// Ends the series of devices that no scan has found in time. Their completions are counted as lost (`unknown_device`).
    pub(in crate::collector) fn expire_unresolved(
        &mut self,
        store: &mut SeriesStore,
        probe: &mut Probe,
    ) -> Result<()> {
        let unresolved: BTreeSet<u64> =
            store.keys().filter(|key| self.is_unresolved(*key)).map(|key| key.device()).collect();
        for id in unresolved {
            let since = self.unresolved.entry(id).or_insert_with(Instant::now);
            // Allow for a slow scan, for example on a busy machine or with a hung drive.
            if self.known_scan_began.saturating_duration_since(*since) >= UNRESOLVED_TIMEOUT {
                let count = |completions| self.unresolved_completions += completions;
                end_counts(id, store, probe, count)?;
                self.unresolved.remove(&id);
            }
        }
        Ok(())
    }
}
