//! Slots of the probe's maps: how many there have to be, and the series that get one in advance.

use biolat_common::{series::Key, slot::SLOTS};

use super::Collector;

/// Slots kept free for unforeseen series: as many as fit into this, within bounds.
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_SLOTS: std::ops::RangeInclusive<u64> = 4..=64;

fn spare(slot_bytes: u64) -> u64 {
    (SPARE_BYTES / slot_bytes).clamp(*SPARE_SLOTS.start(), *SPARE_SLOTS.end())
}

/// Slots to begin with: for reads and writes of this many devices, and some to spare.
pub fn slots_at_start(devices: usize, slot_bytes: u64) -> u32 {
    (2 * devices as u64 + spare(slot_bytes)).min(u64::from(SLOTS)) as u32
}

impl Collector {
    /// Adds slots until there is one for reads and one for writes of each device that is shown, and some to spare. If that
    /// fails, new series are counted as lost; existing ones continue.
    ///
    /// Unresolved devices and slots in quarantine get at most as many again as there are to spare: devices may come and go
    /// faster than their series end, and maps are never freed.
    pub(super) fn provide_slots(&mut self) {
        let foreseen = self.foreseen().count();
        let spare = spare(self.probe.maps.slot_bytes());
        let unresolved = self.store.keys().filter(|key| self.is_unresolved(*key)).count();
        let named = self.store.keys().count() - unresolved;
        let transient = (unresolved + self.store.quarantined()) as u64;
        let needed = (named + foreseen) as u64 + spare + transient.min(spare);
        while u64::from(self.probe.maps.slots()) < needed {
            let problem = match self.store.grow(&mut self.probe.maps) {
                Ok(true) => {
                    self.grow_failed = false;
                    continue;
                }
                Ok(false) => {
                    format!(
                        "the limit of {SLOTS} series is reached: I/O of new series will be counted as lost"
                    )
                }
                Err(error) => {
                    format!("cannot create maps for new series, their I/O will be counted as lost: {error:#}")
                }
            };
            if !std::mem::replace(&mut self.grow_failed, true) {
                log::error!("{problem}");
            }
            break;
        }
        if let Err(error) = self.release_slots() {
            log::debug!("cannot release slots, trying again with the next collection: {error:#}");
        }
    }

    /// The series of reads and writes of each device that is shown, as far as they do not exist yet.
    fn foreseen(&self) -> impl Iterator<Item = Key> {
        let shown = self.devices.iter().filter(|(_, known)| known.shown);
        shown.flat_map(|(&id, _)| [Key::new(id, 0), Key::new(id, 1)]).filter(|key| !self.store.contains(*key))
    }

    /// Creates the series of reads and writes of each device that is shown. One that cannot be created now is created by the probe
    /// at its first I/O.
    pub(super) fn create_foreseen_series(&mut self) {
        let foreseen: Vec<_> = self.foreseen().collect();
        for key in foreseen {
            match self.store.create(&mut self.probe.maps, key) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => return log::debug!("cannot create a series in advance: {error:#}"),
            }
        }
    }

    /// Logs each series that there was no slot for, once. Series of unresolved devices are not logged.
    pub(super) fn log_no_room(&mut self) {
        for key in std::mem::take(&mut self.no_room) {
            match self.devices.get(&key.device()) {
                Some(known) if self.logged_no_room.insert(key) => log::warn!(
                    "there was no slot for {} of {}: its completions until now are counted as lost (no_room)",
                    self.probe.kernel.op_name(key.op()),
                    known.device.name
                ),
                _ => {}
            }
        }
        self.logged_no_room.retain(|key| self.devices.contains_key(&key.device()));
    }
}
