//! Counters by workload and series. A workload is a cgroup to which the kernel charges I/O.
//!
//! Each CPU has two tables of entries, used alternately. The daemon switches tables by incrementing the epoch, waits until all
//! probe runs that began before the switch have finished, and reads the idle table. This counts each I/O completely and exactly
//! once. An entry from an earlier epoch is free; its next user clears it.

use core::mem::{offset_of, size_of};

use crate::{hash::spread, size::BAND_CELLS, slot::Cell};

/// Workload of I/Os without a cgroup, such as flushes: the kernel itself. No cgroup has this serial number.
pub const KERNEL: u64 = 0;

/// All workloads without an entry of their own.
pub const OTHER: u64 = u64::MAX;

/// Number of places to try for an entry, starting with the one selected by its hash.
pub const PROBES: u32 = 8;

/// The counters of one workload and series on one CPU in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Entry {
    /// Serial number of the cgroup, or [`KERNEL`] or [`OTHER`].
    pub workload: u64,
    /// The series and its slot, as [`Cell::bits`].
    pub series: u64,
    /// The epoch in which the entry counts.
    pub epoch: u64,
    /// Time in the queue phase, in nanoseconds, of requests with both timestamps.
    pub queue_ns: u64,
    /// Time in the device phase, in nanoseconds, of requests with both timestamps.
    pub device_ns: u64,
    /// Time from allocation to completion, in nanoseconds, of requests without a dispatch timestamp.
    pub unsplit_ns: u64,
    /// Bytes transferred.
    pub bytes: u64,
    /// Number of failed completions.
    pub errors: u64,
    /// Total latencies by [`crate::size::band_cell`].
    pub cells: [u32; BAND_CELLS],
}

impl Entry {
    /// An unused entry.
    pub const ZERO: Self = Self::new(0, Cell::EMPTY, 0);

    /// Creates an entry without counts.
    #[inline(always)]
    #[must_use]
    pub const fn new(workload: u64, series: Cell, epoch: u64) -> Self {
        Self {
            workload,
            series: series.bits(),
            epoch,
            queue_ns: 0,
            device_ns: 0,
            unsplit_ns: 0,
            bytes: 0,
            errors: 0,
            cells: [0; BAND_CELLS],
        }
    }

    /// Whether this is the entry of this workload and series in this epoch.
    #[inline(always)]
    #[must_use]
    pub const fn is_of(&self, workload: u64, series: Cell, epoch: u64) -> bool {
        (self.workload ^ workload) | (self.series ^ series.bits()) | (self.epoch ^ epoch) == 0
    }
}

/// The pattern names every field without `..`, so code with a new field does not compile until the field is merged.
#[deny(unused_variables)]
impl Entry {
    /// Adds the counts of another CPU.
    pub fn merge(&mut self, other: &Self) {
        let Self { workload: _, series: _, epoch: _, queue_ns, device_ns, unsplit_ns, bytes, errors, cells } =
            other;
        self.queue_ns = self.queue_ns.wrapping_add(*queue_ns);
        self.device_ns = self.device_ns.wrapping_add(*device_ns);
        self.unsplit_ns = self.unsplit_ns.wrapping_add(*unsplit_ns);
        self.bytes = self.bytes.wrapping_add(*bytes);
        self.errors = self.errors.wrapping_add(*errors);
        for (sum, count) in self.cells.iter_mut().zip(cells) {
            *sum = sum.wrapping_add(*count);
        }
    }
}

const _: () = {
    assert!(offset_of!(Entry, cells) == 64);
    assert!(size_of::<Entry>() == 320);
};

/// The entries of one CPU: both tables, one after the other. A table begins with an entry of [`OTHER`] for each of the first
/// `slots` slots; the entries found by hash follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// Number of slots whose I/O is counted by workload.
    pub slots: u32,
    /// Number of places that a hash can select.
    pub hashes: u32,
}

impl Tables {
    /// Number of entries in one table.
    #[inline(always)]
    #[must_use]
    pub const fn entries(self) -> u32 {
        self.slots + self.hashes + PROBES - 1
    }

    /// Number of entries in both tables; at least one, because a map cannot be empty.
    #[must_use]
    pub const fn places(self) -> u32 {
        if self.slots == 0 { 1 } else { 2 * self.entries() }
    }

    /// The first entry of the table that an epoch uses.
    #[inline(always)]
    #[must_use]
    pub const fn start(self, epoch: u64) -> u32 {
        if epoch & 1 == 0 { 0 } else { self.entries() }
    }

    /// The first place to try for the entry of a workload and series.
    #[inline(always)]
    #[must_use]
    pub const fn place(self, workload: u64, series: Cell, epoch: u64) -> u32 {
        let hash = spread(spread(workload) ^ series.bits()) >> 32;
        self.start(epoch) + self.slots + ((hash * self.hashes as u64) >> 32) as u32
    }

    /// The place of the [`OTHER`] entry for the series in a slot.
    #[inline(always)]
    #[must_use]
    pub const fn other(self, slot: u32, epoch: u64) -> u32 {
        self.start(epoch) + slot
    }
}

/// Upper limit on the number of places in both tables. A power of two, so a mask bounds the index without a branch.
pub const MAX_PLACES: u32 = (MAX_BYTES_OF_CPU / size_of::<Entry>() as u64).next_power_of_two() as u32;

/// Upper limit on the size of both tables of one CPU, in bytes.
pub const MAX_BYTES_OF_CPU: u64 = 4 << 20;

/// For each place in both tables, the low half of the latest epoch in which any CPU created an entry there.
pub type Places = [u32; MAX_PLACES as usize];

/// Number of path components recorded for a cgroup, from its own name upwards.
pub const LEVELS: usize = 10;

/// Size of a name in bytes, including the terminating zero.
pub const NAME_BYTES: usize = 128;

/// The record of a cgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Cgroup {
    /// Address of its `cgroup_subsys_state`, used to check later whether the cgroup still exists.
    pub css: u64,
    /// Nonzero if the daemon has asked the probe to record the names again.
    pub is_stale: u64,
    /// Names of its directory and its ancestors, from the bottom up; empty above the root.
    pub names: [[u8; NAME_BYTES]; LEVELS],
}

const _: () = assert!(size_of::<Cgroup>() == 16 + LEVELS * NAME_BYTES);

#[cfg(test)]
mod tests {
    use super::{KERNEL, OTHER, PROBES, Tables};
    use crate::{series::Key, slot::Cell};

    /// Every candidate place is in the table of its epoch, after the entries of `OTHER`.
    #[test]
    fn places_are_in_the_table() {
        let tables = Tables { slots: 12, hashes: 100 };
        for workload in (1..2000).chain([KERNEL, OTHER]) {
            for epoch in 4..6 {
                let series = Cell::new(Key::new(workload % 7 + 1, 1), (workload % 12) as u32);
                let (start, end) = (tables.start(epoch), tables.start(epoch) + tables.entries());
                let place = tables.place(workload, series, epoch);
                assert!((start + tables.slots..=end - PROBES).contains(&place), "{place}");
                assert!((start..start + tables.slots).contains(&tables.other(series.slot(), epoch)));
            }
        }
    }

    /// With half as many workloads as places, few share a place.
    #[test]
    fn spreads_workloads_over_places() {
        let tables = Tables { slots: 0, hashes: 512 };
        let series = Cell::new(Key::new(9, 0), 3);
        let mut taken = [0_u8; 512];
        // Serial numbers may be consecutive or have gaps.
        for workload in (0..128).chain((0..128).map(|number| 1000 + number * 12)) {
            taken[tables.place(workload, series, 0) as usize] += 1;
        }
        assert!(taken.iter().all(|&workloads| workloads <= 6));
        assert!(taken.iter().filter(|&&workloads| workloads > 0).count() > 160);
    }
}
