//! Places each device's region in the array of processes.

use std::collections::BTreeMap;

use biolat_common::processes::Region;

use crate::device::sysfs::Tags;

/// Minimum number of tags per hardware queue: a scheduler that is chosen later has 256 by default.
const MIN_TAGS: u32 = 256;

/// Number of entries in a cache line, which two hardware queues must not share.
const LINE: u32 = 8;

/// Minimum number of entries that are left free for devices that appear later.
const SPARE: u32 = 1 << 16;

/// Maximum size of the array, in entries of 8 bytes.
const MAX_ENTRIES: u32 = 1 << 24;

/// The regions by device.
pub(super) struct Regions {
    entries: u32,
    placed: BTreeMap<u64, Region>,
}

impl Regions {
    /// Plans an array for these devices, with room for more.
    pub(super) fn plan(tags: impl Iterator<Item = Tags>) -> Self {
        let needed = tags.map(|tags| length(unplaced(0, tags))).fold(0_u32, u32::saturating_add);
        let entries = needed.saturating_add((needed / 4).max(SPARE)).min(MAX_ENTRIES);
        Self { entries, placed: BTreeMap::new() }
    }

    /// Size of the array.
    pub(super) const fn entries(&self) -> u32 {
        self.entries
    }

    /// The devices with a region.
    pub(super) fn devices(&self) -> Vec<u64> {
        self.placed.keys().copied().collect()
    }

    /// Whether a device has a region with room for these tags.
    pub(super) fn fits(&self, device: u64, tags: Tags) -> bool {
        let wanted = unplaced(device, tags);
        let has = |region: &Region| region.queues >= wanted.queues && region.tags >= wanted.tags;
        self.placed.get(&device).is_some_and(has)
    }

    /// Places a device in the first gap that is large enough. `None` if there is none.
    pub(super) fn place(&mut self, device: u64, tags: Tags) -> Option<Region> {
        self.remove(device);
        let region = unplaced(device, tags);
        let mut placed: Vec<_> = self.placed.values().map(|region| (region.base, length(*region))).collect();
        placed.sort_unstable();
        let mut base = 0;
        for (start, taken) in placed {
            if start - base >= length(region) {
                break;
            }
            base = start + taken;
        }
        if self.entries - base < length(region) {
            return None;
        }
        let region = Region { base, ..region };
        self.placed.insert(device, region);
        Some(region)
    }

    pub(super) fn remove(&mut self, device: u64) {
        self.placed.remove(&device);
    }
}

fn unplaced(device: u64, tags: Tags) -> Region {
    let tags_per_queue = tags.per_queue.clamp(MIN_TAGS, MAX_ENTRIES).next_multiple_of(LINE);
    Region { device, queues: tags.queues, tags: tags_per_queue, ..Region::default() }
}

const fn length(region: Region) -> u32 {
    region.queues.saturating_mul(region.tags)
}

#[cfg(test)]
mod tests {
    use super::{MAX_ENTRIES, Regions, SPARE};
    use crate::device::sysfs::Tags;

    const SMALL: Tags = Tags { queues: 1, per_queue: 62 };
    const LARGE: Tags = Tags { queues: 4, per_queue: 1023 };

    #[test]
    fn regions_do_not_overlap() {
        let mut regions = Regions::plan([SMALL, LARGE].into_iter());
        assert_eq!(regions.entries(), 256 + 4 * 1024 + SPARE);
        let small = regions.place(7, SMALL).unwrap();
        let large = regions.place(9, LARGE).unwrap();
        assert_eq!((small.base, small.tags), (0, 256));
        assert_eq!((large.base, large.tags), (256, 1024));
        assert!(regions.fits(7, SMALL) && !regions.fits(7, LARGE) && !regions.fits(8, SMALL));
        assert_eq!(regions.devices(), [7, 9]);
    }

    #[test]
    fn fills_gaps_and_moves_devices_that_grow() {
        let mut regions = Regions::plan([SMALL, LARGE].into_iter());
        regions.place(7, SMALL);
        regions.place(9, LARGE);
        let grown = regions.place(7, Tags { queues: 2, ..SMALL }).unwrap();
        assert_eq!(grown.base, 256 + 4 * 1024);
        assert_eq!(regions.place(11, SMALL).unwrap().base, 0);
        regions.remove(11);
        assert_eq!(regions.place(12, SMALL).unwrap().base, 0);
    }

    #[test]
    fn refuses_what_does_not_fit() {
        let huge = Tags { queues: 1 << 20, per_queue: 1 << 12 };
        let mut regions = Regions::plan([huge].into_iter());
        assert_eq!(regions.entries(), MAX_ENTRIES);
        assert_eq!(regions.place(1, huge), None);
        assert!(regions.place(2, SMALL).is_some());
    }
}
