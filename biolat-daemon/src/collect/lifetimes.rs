//! When series begin and end: devices that appear and disappear, and devices that never get a name.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{series::Key, slot::table_cell};

use super::{Collector, KnownDevice, keys_of, slots::Quarantined};
use crate::device::{Device, Throttling};

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
        for id in gone {
            if let Some(known) = self.devices.remove(&id) {
                log::info!("device {} is gone", known.device.name);
            }
            self.end_series(id)?;
        }
        for device in found {
            self.unresolved_devices.remove(&device.id);
            if let Some(known) = self.devices.get_mut(&device.id) {
                known.device = device;
                continue;
            }
            let shown = self.selection.shows(&device.name);
            if shown {
                log_device(&device);
            }
            let has_dispatch_times = device.throttling == Throttling::SetUp;
            let since = SystemTime::now();
            self.devices.insert(
                device.id,
                KnownDevice { device, shown, since, audit: None, was_quiet: false, has_dispatch_times },
            );
        }
        Ok(())
    }

    /// Whether no scan has found this series' device.
    pub(super) fn is_unresolved(&self, key: Key) -> bool {
        !self.devices.contains_key(&key.device())
    }

    /// Ends the series of devices that got no name in time: their completions are counted as lost, `unknown_device`.
    pub(super) fn expire_unresolved_devices(&mut self) -> Result<()> {
        let unresolved: BTreeSet<u64> =
            self.series.keys().filter(|key| self.is_unresolved(**key)).map(|key| key.device()).collect();
        for id in unresolved {
            let since = self.unresolved_devices.entry(id).or_insert_with(Instant::now);
            if since.elapsed() >= UNRESOLVED_TIMEOUT {
                self.unresolved_devices.remove(&id);
                self.unresolved_completions += self.end_series(id)?;
            }
        }
        Ok(())
    }

    /// Ends every series of a device; returns how many completions they held.
    fn end_series(&mut self, id: u64) -> Result<u64> {
        let ended: Vec<_> = self.series.extract_if(keys_of(id), |_, _| true).collect();
        let mut completions = 0;
        for (key, tracked) in ended {
            completions += tracked.totals.count();
            self.probe.maps.remove(key)?;
            self.quarantined.push(Quarantined { slot: tracked.slot, since: Instant::now() });
            // Another series that wanted the same cell of the table may get it now.
            for (_, other) in
                self.series.iter_mut().filter(|(other, _)| table_cell(**other) == table_cell(key))
            {
                other.in_table = false;
            }
        }
        Ok(completions)
    }
}
