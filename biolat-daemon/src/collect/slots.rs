//! Slots of the probe's maps: how many there have to be, and when one can be used again.

use std::time::{Duration, Instant};

use anyhow::Result;
use biolat_common::{series::Key, slot::SLOTS};

use super::Collector;

/// A slot whose series has ended. A run of the probe that began before may still write to it.
pub(super) struct Quarantined {
    pub(super) slot: u32,
    pub(super) since: Instant,
}

/// Longer than any run of the probe.
const QUARANTINE: Duration = Duration::from_millis(100);

/// Slots kept free for unforeseen series: as many as fit into this, within bounds.
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_SLOTS: std::ops::RangeInclusive<u64> = 4..=64;

fn spare(slot_bytes: u64) -> u64 {
    (SPARE_BYTES / slot_bytes).clamp(*SPARE_SLOTS.start(), *SPARE_SLOTS.end())
}

/// Slots to begin with: for reads and writes of this many devices, and some to spare.
pub(crate) fn slots_at_start(devices: usize, slot_bytes: u64) -> u32 {
    (2 * devices as u64 + spare(slot_bytes)).min(u64::from(SLOTS)) as u32
}

impl Collector {
    /// Returns slots whose quarantine is over to the probe; their values become the next baselines.
    pub(super) fn end_quarantine(&mut self) -> Result<()> {
        for quarantined in self.quarantined.extract_if(.., |slot| slot.since.elapsed() >= QUARANTINE) {
            self.baselines.insert(quarantined.slot, self.probe.maps.read(quarantined.slot)?);
            self.probe.maps.release(quarantined.slot)?;
        }
        Ok(())
    }

    /// When the slot that has been in quarantine longest can be used again.
    pub(super) fn quarantine_ends(&self) -> Option<Instant> {
        self.quarantined.first().map(|quarantined| quarantined.since + QUARANTINE)
    }

    /// Adds slots until there is one for reads and one for writes of each device that is shown, and some to spare. If that
    /// fails, new series are counted as lost; existing ones continue.
    ///
    /// Unresolved devices and slots in quarantine get at most as many again as there are to spare: devices may come and go
    /// faster than their series end, and maps are never freed.
    pub(super) fn provide_slots(&mut self) {
        let is_missing = |id: u64, op: u32| !self.series.contains_key(&Key::new(id, op));
        let shown = self.devices.iter().filter(|(_, known)| known.shown);
        let foreseen = shown
            .flat_map(|(&id, _)| [is_missing(id, 0), is_missing(id, 1)])
            .filter(|&missing| missing)
            .count();
        let spare = spare(self.probe.maps.slot_bytes());
        let unresolved = self.series.keys().filter(|key| self.is_unresolved(**key)).count();
        let named = self.series.len() - unresolved;
        let transient = (unresolved + self.quarantined.len()) as u64;
        let needed = (named + foreseen) as u64 + spare + transient.min(spare);
        while u64::from(self.probe.maps.slots()) < needed {
            let problem = match self.probe.maps.grow() {
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
