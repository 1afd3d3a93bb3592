//! Slots in the probe's maps: how many are needed, and which series get one in advance.

use std::collections::BTreeSet;

use biolat_common::{series::Key, slot::SLOTS};
use biolat_probe::{Maps, kernel::Kernel};

use super::{devices::Devices, series_store::SeriesStore};

/// Memory for slots kept free for unforeseen series, and limits on their number.
const SPARE_BYTES: u64 = 1 << 20;
const SPARE_SLOTS: std::ops::RangeInclusive<u64> = 4..=64;

fn spare(slot_bytes: u64) -> u64 {
    (SPARE_BYTES / slot_bytes).clamp(*SPARE_SLOTS.start(), *SPARE_SLOTS.end())
}

/// Returns the number of slots to start with: for reads and writes of this many devices, and some to spare.
pub fn slots_at_start(devices: usize, slot_bytes: u64) -> u32 {
    (2 * devices as u64 + spare(slot_bytes)).min(u64::from(SLOTS)) as u32
}

/// Adds slots, and creates series in them in advance.
#[derive(Default)]
pub(super) struct SlotSupply {
    /// Whether the last attempt to add slots failed.
    has_failed: bool,
    /// Series for which the probe found no free slot, to be logged.
    no_room: BTreeSet<Key>,
    logged_no_room: BTreeSet<Key>,
}

impl SlotSupply {
    /// Adds slots until there is one each for reads and writes of each shown device, and some to spare. If that fails,
    /// completions of new series are counted as lost, while existing series continue.
    ///
    /// Unresolved devices and quarantined slots get at most as many extra slots as there are spare ones, because devices can come
    /// and go faster than their series end, and maps are never freed.
    pub(super) fn provide(&mut self, store: &mut SeriesStore, maps: &mut Maps, devices: &Devices) {
        let foreseen = foreseen(store, devices).count();
        let spare = spare(maps.slot_bytes());
        let unresolved = store.keys().filter(|key| devices.is_unresolved(*key)).count();
        let named = store.keys().count() - unresolved;
        let transient = (unresolved + store.quarantined()) as u64;
        let needed = (named + foreseen) as u64 + spare + transient.min(spare);
        while u64::from(maps.slots()) < needed {
            let problem = match store.grow(maps) {
                Ok(true) => {
                    self.has_failed = false;
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
            if !std::mem::replace(&mut self.has_failed, true) {
                log::error!("{problem}");
            }
            break;
        }
    }

    /// Adds series for which the probe found no free slot. Returns all series to be logged.
    pub(super) fn add_no_room(&mut self, keys: BTreeSet<Key>) -> &BTreeSet<Key> {
        self.no_room.extend(keys);
        &self.no_room
    }

    /// Logs each series without a slot once. Series of unresolved devices are not logged.
    pub(super) fn log_no_room(&mut self, devices: &Devices, kernel: &Kernel) {
        for key in std::mem::take(&mut self.no_room) {
            match devices.get(key.device()) {
                Some(known) if self.logged_no_room.insert(key) => log::warn!(
                    "no room to count {} on {}: its completions so far are counted as lost (no_room)",
                    kernel.op_name(key.op()),
                    known.device.name
                ),
                _ => {}
            }
        }
        self.logged_no_room.retain(|key| !devices.is_unresolved(*key));
    }
}

/// Returns the missing read and write series of each shown device.
fn foreseen(store: &SeriesStore, devices: &Devices) -> impl Iterator<Item = Key> {
    let keys = devices.shown().flat_map(|(id, _)| [Key::new(id, 0), Key::new(id, 1)]);
    keys.filter(|key| !store.contains(*key))
}

/// Creates the series for reads and writes of each shown device. If one cannot be created now, the probe creates it on its first
/// I/O.
pub(super) fn create_foreseen(store: &mut SeriesStore, maps: &mut Maps, devices: &Devices) {
    let foreseen: Vec<_> = foreseen(store, devices).collect();
    for key in foreseen {
        match store.create(maps, key) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return log::debug!("cannot create a series in advance: {error:#}"),
        }
    }
}
