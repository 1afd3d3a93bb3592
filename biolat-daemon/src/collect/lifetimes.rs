//! When series begin and end: devices that come and go, slots that are made, laid fallow and used again.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    slot::{SLOTS, table_cell},
};

use super::{Collector, Known, keys_of};
use crate::device::{Device, Throttling};

/// A slot whose series is gone. A run of the probe that began before may still write to it.
pub(super) struct Fallow {
    slot: u32,
    since: Instant,
}

/// Longer than any run of the probe.
const GRACE: Duration = Duration::from_millis(100);

/// How long a stranger may take to show up in sysfs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Slots that are kept free for series that nobody foresaw: as many as fit into this, within bounds.
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_SLOTS: std::ops::RangeInclusive<u64> = 4..=64;

fn spare(slot_bytes: u64) -> u64 {
    (SPARE_BYTES / slot_bytes).clamp(*SPARE_SLOTS.start(), *SPARE_SLOTS.end())
}

/// Slots to begin with: for the reads and writes of so many devices, and some to spare.
pub(crate) fn slots_at_start(devices: usize, slot_bytes: u64) -> u32 {
    (2 * devices as u64 + spare(slot_bytes)).min(u64::from(SLOTS)) as u32
}

fn greet(device: &Device) {
    let said: Vec<_> = [&device.name, &device.model, &device.serial]
        .into_iter()
        .map(String::as_str)
        .filter(|s| !s.is_empty())
        .collect();
    log::info!("device {}", said.join(", "));
    if let Some(missing) = device.lacks() {
        log::warn!("{missing}");
    }
}

impl Collector {
    /// Takes note of the devices that are there now, and ends the series of those that are not.
    pub(super) fn meet(&mut self, found: Vec<Device>) -> Result<()> {
        let is_here = |known: &Known| {
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
            self.strangers.remove(&device.id);
            if let Some(known) = self.devices.get_mut(&device.id) {
                known.device = device;
                continue;
            }
            let shown = self.selection.shows(&device.name);
            if shown {
                greet(&device);
            }
            let stamped = device.throttling == Throttling::SetUp;
            let since = SystemTime::now();
            self.devices.insert(
                device.id,
                Known { device, shown, since, audit: None, opened_quietly: false, stamped },
            );
        }
        Ok(())
    }

    /// Whether nobody knows this series' device.
    pub(super) fn is_strange(&self, key: Key) -> bool {
        !self.devices.contains_key(&key.device())
    }

    /// Ends the series of devices that never got a name: their completions are lost, and counted as such.
    pub(super) fn forget_strangers(&mut self) -> Result<()> {
        let strange: BTreeSet<u64> =
            self.series.keys().filter(|key| self.is_strange(**key)).map(|key| key.device()).collect();
        for id in strange {
            let since = self.strangers.entry(id).or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                self.strangers.remove(&id);
                self.unnamed += self.end_series(id)?;
            }
        }
        Ok(())
    }

    /// Takes every series of a device out; tells how many completions they held.
    fn end_series(&mut self, id: u64) -> Result<u64> {
        let ended: Vec<_> = self.series.extract_if(keys_of(id), |_, _| true).collect();
        let mut completions = 0;
        for (key, tracked) in ended {
            completions += tracked.totals.count();
            self.probe.maps.remove(key)?;
            self.fallow.push(Fallow { slot: tracked.slot, since: Instant::now() });
            // Whose place in the table it had may have it now.
            for (_, other) in
                self.series.iter_mut().filter(|(other, _)| table_cell(**other) == table_cell(key))
            {
                other.in_table = false;
            }
        }
        Ok(completions)
    }

    /// Hands slots that nobody writes any more to the probe again, and keeps what is in them.
    pub(super) fn end_fallow(&mut self) -> Result<()> {
        for fallow in self.fallow.extract_if(.., |fallow| fallow.since.elapsed() >= GRACE) {
            self.floors.insert(fallow.slot, self.probe.maps.read(fallow.slot)?);
            self.probe.maps.release(fallow.slot)?;
        }
        Ok(())
    }

    /// Sees that there is a slot for the reads and one for the writes of every device that is shown and has none
    /// yet, and some to spare. Without them new series are lost, and counted as such; those that there are go on.
    ///
    /// For devices without a name and for slots that lie fallow there are as many again and no more: devices may
    /// come and go faster than they are forgotten, and what is made is never given back.
    pub(super) fn provide_slots(&mut self) {
        let lacks = |id: u64, op: u32| !self.series.contains_key(&Key::new(id, op));
        let shown = self.devices.iter().filter(|(_, known)| known.shown);
        let foreseen = shown.flat_map(|(&id, _)| [lacks(id, 0), lacks(id, 1)]).filter(|&lacks| lacks).count();
        let spare = spare(self.probe.maps.slot_bytes());
        let strange = self.series.keys().filter(|key| self.is_strange(**key)).count();
        let named = self.series.len() - strange;
        let transient = (strange + self.fallow.len()) as u64;
        let wanted = (named + foreseen) as u64 + spare + transient.min(spare);
        while u64::from(self.probe.maps.slots()) < wanted {
            let trouble = match self.probe.maps.grow() {
                Ok(true) => {
                    self.cramped = false;
                    continue;
                }
                Ok(false) => format!("there will be no room for more than {SLOTS} series"),
                Err(error) => format!("there will be no room for new series: {error:#}"),
            };
            if !std::mem::replace(&mut self.cramped, true) {
                log::error!("{trouble}");
            }
            break;
        }
    }

    /// Says which series there was no room for, of each of them once. Those without a name are gone again.
    pub(super) fn tell_of_no_room(&mut self) {
        for key in std::mem::take(&mut self.lacked_room) {
            match self.devices.get(&key.device()) {
                Some(known) if self.told_of_no_room.insert(key) => log::warn!(
                    "there was no room for {} of {}: its completions until now are counted as lost, reason no_room",
                    self.probe.kernel.op_name(key.op()),
                    known.device.name
                ),
                _ => {}
            }
        }
        // Whom nobody knows any more nobody has to hear of again.
        self.told_of_no_room.retain(|key| self.devices.contains_key(&key.device()));
    }

    /// When the slot that has lain fallow longest can be used again.
    pub(super) fn fallow_until(&self) -> Option<Instant> {
        self.fallow.first().map(|fallow| fallow.since + GRACE)
    }
}
