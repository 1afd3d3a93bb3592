//! When series begin and end: devices that appear and disappear, and devices that never get a name.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::series::Key;
use biolat_model::device::{Device, Throttling};

use super::{Collector, KnownDevice, inflight::InflightState, spread::Spread};

/// How long a device that the probe has seen may be missing in sysfs.
const UNRESOLVED_TIMEOUT: Duration = Duration::from_secs(2);

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

impl Collector {
    /// Adds the devices that a scan has found, and ends the series of those that are gone.
    pub(super) fn reconcile(&mut self, found: Vec<Device>) -> Result<()> {
        let is_here = |known: &KnownDevice| {
            let same = |device: &Device| device.id == known.device.id && device.inode == known.device.inode;
            found.iter().any(same)
        };
        let gone: Vec<u64> =
            self.devices.iter().filter(|(_, known)| !is_here(known)).map(|(&id, _)| id).collect();
        let mut outcome = Ok(());
        for id in gone {
            match self.store.end(&mut self.probe.maps, id, |_| {}) {
                Ok(()) => {
                    if let Some(known) = self.devices.remove(&id) {
                        if known.shown {
                            log::info!("device {} is gone", known.device.name);
                        }
                        self.gone.add(known);
                    }
                }
                // It stays until its series have ended: otherwise they would be those of an unknown device. The next scan finds
                // it gone again.
                Err(error) => {
                    self.scanned = None;
                    outcome = Err(error);
                }
            }
        }
        for device in found {
            self.unresolved_devices.remove(&device.id);
            if let Some(known) = self.devices.get_mut(&device.id) {
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
                has_submission_times: self.probe.kernel.records_submission(),
                inflight: InflightState::default(),
                spread: Spread::of(self.store.completions(device.id)),
                device,
            };
            if let Some(place) = self.kept_devices.iter().position(|kept| kept.id == known.device.id) {
                known.continue_from(&self.kept_devices.swap_remove(place));
            }
            self.devices.insert(known.device.id, known);
        }
        outcome
    }

    /// Whether no scan has found this series' device.
    pub(super) fn is_unresolved(&self, key: Key) -> bool {
        !self.devices.contains_key(&key.device())
    }

    /// Ends the series of devices that no scan has found in time: their completions are counted as lost, `unknown_device`.
    pub(super) fn expire_unresolved_devices(&mut self) -> Result<()> {
        let unresolved: BTreeSet<u64> =
            self.store.keys().filter(|key| self.is_unresolved(*key)).map(|key| key.device()).collect();
        for id in unresolved {
            let since = self.unresolved_devices.entry(id).or_insert_with(Instant::now);
            // A scan that takes long, as on a busy machine or with a drive that hangs, is waited for.
            if self.known_scan_began.saturating_duration_since(*since) >= UNRESOLVED_TIMEOUT {
                let count = |completions| self.unresolved_completions += completions;
                self.store.end(&mut self.probe.maps, id, count)?;
                self.unresolved_devices.remove(&id);
            }
        }
        Ok(())
    }
}
