//! The probe's workload tables: see [`biolat_common::workload`].

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use std::{
    collections::BTreeMap,
    ops::RangeInclusive,
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, ArrayOfMaps, HashMap, IterableMap as _, MapData, MapError};
use biolat_common::{
    series::Key,
    slot::Cell,
    workload::{Cgroup, Entry, LEVELS, MAX_BYTES_OF_CPU, NAME_BYTES, PROBES, Places, Tables},
};

use super::{
    banks::{Bank, Room},
    counter_array::{self, Shape, ensure_shape},
    grace_periods::GracePeriods,
    map_set::MapSet,
    maps::{array_data, array_of_maps},
    programs::{self, Programs},
    sys,
};

/// Update an entry only if its key exists.
const BPF_EXIST: u64 = 2;

/// The map of the probe's variables whose initial value is not zero. The epoch is the only one.
const DATA: &str = ".data";

/// The first program's tables in the first bank.
const WORKLOADS: &str = "WORKLOADS";
/// The arrays of the tables in the other banks, and of the understudy's tables.
pub(super) const TABLES_OF_PROGRAMS: [&str; 2] = ["MORE_WORKLOADS", "WORKLOADS_2"];

/// Upper limit on the kernel memory for both tables: this much per CPU, with the total kept within these bounds.
const CPU_BYTES: u64 = 512 << 10;
const BYTES: RangeInclusive<u64> = MAX_BYTES_OF_CPU..=64 << 20;

/// Number of entries per workload in a table: reads and writes on two devices, doubled to keep collisions rare.
const ENTRIES_PER_WORKLOAD: u64 = 8;

/// Returns the table sizes for this number of workloads and slots, on machines with room for this number of CPUs.
#[must_use]
pub(super) fn tables(workloads: u32, slots: u32, cpus: u64) -> Tables {
    if workloads == 0 {
        return Tables { slots: 0, hashes: 0 };
    }
    let bytes = (CPU_BYTES * cpus).clamp(*BYTES.start(), *BYTES.end());
    let entries = bytes / cpus.max(1) / 2 / size_of::<Entry>() as u64 - u64::from(PROBES - 1);
    let slots = u64::from(slots).min(entries / 2);
    let hashes = (u64::from(workloads) * ENTRIES_PER_WORKLOAD).min(entries - slots);
    Tables { slots: slots as u32, hashes: hashes as u32 }
}

/// Kernel memory for both tables, for this number of workloads, slots and this room, in bytes.
#[must_use]
pub fn workload_bytes(workloads: u32, slots: u32, room: Room) -> u64 {
    if workloads == 0 {
        return 0;
    }
    let entries = 2 * u64::from(tables(workloads, slots, room.cpus()).entries());
    entries * size_of::<Entry>() as u64 * room.cpus()
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct EntryValue(Entry);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct CgroupValue(Cgroup);

#[derive(Clone, Copy)]
#[repr(transparent)]
struct PlacesValue(Places);

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for EntryValue {}

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for CgroupValue {}

// SAFETY: integers.
unsafe impl aya::Pod for PlacesValue {}

/// The I/O of all workloads in one epoch, by series and workload, summed over the CPUs.
pub type EpochCounts = BTreeMap<(Key, u64), Entry>;

/// A cgroup as recorded by the probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCgroup {
    /// Address of its state.
    pub css: u64,
    /// Path from the root of the hierarchy.
    pub path: String,
}

/// State of the table of the previous epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resting {
    /// Its counts have been taken.
    Taken,
    /// The probe has been switched to the other table; after this grace period no run uses this one.
    InUse { grace_period: u64 },
    /// No run of the probe writes to it any longer.
    Complete,
}

/// The maps of the workload tables and the cgroups.
pub struct WorkloadMaps {
    /// The probe's arrays of the tables, for both programs.
    outer: [ArrayOfMaps<MapData>; 2],
    /// The tables by bank, for both programs. The understudy's are empty until they are added.
    banks: [Vec<MapData>; 2],
    shape: Shape,
    used: Array<MapData, PlacesValue>,
    used_buffer: Box<PlacesValue>,
    cgroups: HashMap<MapData, u64, CgroupValue>,
    room: u32,
    epoch_map: Array<MapData, u64>,
    grace_periods: GracePeriods,
    tables: Tables,
    /// The epoch that the probe counts in.
    epoch: u64,
    resting: Resting,
    buffer: Vec<EntryValue>,
}

impl WorkloadMaps {
    pub(super) fn from_maps(
        maps: &mut MapSet<'_>,
        tables: Tables,
        rows: u32,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let mut take = |name| maps.take(name);
        let epoch_map: Array<_, u64> = take(DATA)?.try_into()?;
        let epoch = epoch_map.get(&0, 0).context("cannot read the epoch")?;
        let cgroups: HashMap<_, _, _> = take("CGROUPS")?.try_into()?;
        let room = cgroups.map().info().context("cannot read the size of a map")?.max_entries();
        let first_table = array_data(take(WORKLOADS)?)?;
        let [first, understudy] = TABLES_OF_PROGRAMS.map(|name| array_of_maps(take(name)?));
        let shape = Shape { length: tables.places(), rows, row_bytes: size_of::<Entry>() as u32 };
        ensure_shape(&first_table, shape)?;
        Ok(Self {
            outer: [first?, understudy?],
            banks: [vec![first_table], Vec::new()],
            shape,
            used: take("WORKLOADS_USED")?.try_into()?,
            // SAFETY: integers, for which zero is valid. Not created on the stack, whose pages would stay resident.
            used_buffer: unsafe { Box::new_zeroed().assume_init() },
            cgroups,
            room,
            epoch_map,
            grace_periods,
            tables,
            epoch,
            resting: Resting::Taken,
            buffer: Vec::new(),
        })
    }

    /// The latest epoch up to which all counts have been taken.
    #[must_use]
    pub fn taken_epoch(&self) -> u64 {
        self.epoch - if self.resting == Resting::Taken { 1 } else { 2 }
    }

    /// Continues after the latest epoch whose counts another process has taken. Fails if more than two epochs have begun since:
    /// the table with the next counts to take would be in use again.
    pub fn continue_after(&mut self, taken: u64) -> Result<()> {
        let begun = self.epoch.checked_sub(taken);
        ensure!(
            matches!(begun, Some(1 | 2)),
            "the epoch is {}, but the last one taken is {taken}",
            self.epoch
        );
        self.resting = if begun == Some(1) { Resting::Taken } else { self.in_use() };
        Ok(())
    }

    /// Uses the tables that another process has added: those of the other banks, and the understudy's.
    pub(super) fn continue_with(&mut self, added: [Vec<MapData>; 2]) -> Result<()> {
        for (tables, added) in self.banks.iter_mut().zip(added) {
            for table in added {
                ensure_shape(&table, self.shape)?;
                tables.push(table);
            }
        }
        Ok(())
    }

    /// Creates the missing tables of a program in these banks, and adds them to the probe.
    fn provide(&mut self, program: usize, banks: &[Bank]) -> Result<()> {
        for bank in &banks[self.banks[program].len()..] {
            let table = counter_array::create(self.shape, bank.node)?;
            let index = self.banks[program].len() as u32;
            self.outer[program].set(index, &table, 0).context("cannot add workload tables to the probe")?;
            self.banks[program].push(table);
        }
        Ok(())
    }

    /// Creates the missing tables in these banks, for the understudy too if it has any.
    pub(super) fn provide_banks(&mut self, banks: &[Bank]) -> Result<()> {
        self.provide(0, banks)?;
        if self.banks[1].is_empty() { Ok(()) } else { self.provide(1, banks) }
    }

    /// Creates the understudy's missing tables.
    pub(super) fn add_understudy_tables(&mut self, banks: &[Bank]) -> Result<()> {
        self.provide(1, banks)
    }

    /// The tables of the first program and of the understudy that were added, with the numbers of their banks.
    pub(super) fn added_tables(&self) -> [Vec<(u32, BorrowedFd<'_>)>; 2] {
        let [first, understudy] = self.banks.each_ref();
        [numbered(first, 1), numbered(understudy, 0)]
    }

    /// Number of slots that are counted by workload. Series in later slots are not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.tables.slots
    }

    /// Kernel memory of the tables in all banks and for both programs, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.banks.iter().flatten().count() as u64 * self.shape.bytes()
    }

    /// Whether all counts from before the current epoch have been taken.
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.resting == Resting::Taken
    }

    /// Switches the probe to the next epoch. The counts of the previous epoch must have been taken; those of the current one are
    /// then available from [`take`](Self::take).
    pub fn begin_epoch(&mut self) -> Result<()> {
        self.epoch_map.set(0, self.epoch + 1, 0).context("cannot change the epoch")?;
        self.epoch += 1;
        self.resting = self.in_use();
        Ok(())
    }

    fn in_use(&self) -> Resting {
        Resting::InUse { grace_period: self.grace_periods.request() }
    }

    /// Waits until no run of the probe still counts in the previous epoch. `false` if that takes longer than the timeout.
    pub fn wait_for_rest(&self, timeout: Duration) -> bool {
        match self.resting {
            Resting::InUse { grace_period } => self.grace_periods.wait(grace_period, timeout),
            Resting::Taken | Resting::Complete => true,
        }
    }

    /// Waits until no run of the probe still counts in the previous epoch, and returns its counts; nothing if they have already
    /// been taken. After an error nothing is lost: the next call returns them.
    pub fn take(&mut self) -> Result<EpochCounts> {
        if self.resting == Resting::Taken {
            return Ok(EpochCounts::new());
        }
        if let Resting::InUse { grace_period } = self.resting {
            self.grace_periods.wait_to_the_end(grace_period);
            self.resting = Resting::Complete;
        }
        let counts = self.read(self.epoch - 1)?;
        self.resting = Resting::Taken;
        Ok(counts)
    }

    /// Reads the counts of an epoch.
    fn read(&mut self, epoch: u64) -> Result<EpochCounts> {
        // SAFETY: aya has checked that the map's value has the size of the buffer.
        unsafe { sys::read_entry(self.used.map(), 0, &raw mut *self.used_buffer) }
            .context("cannot read which entries are in use")?;
        let mut read = EpochCounts::new();
        let used = self.used_buffer.0.iter().take(self.tables.places() as usize);
        for (place, _) in (0..).zip(used).filter(|&(_, &used)| used == epoch as u32) {
            for table in self.banks.iter().flatten() {
                self.buffer.clear();
                self.buffer.reserve(self.shape.rows as usize);
                // SAFETY: a value has this number of rows, and the buffer has room for them.
                unsafe { sys::read_entry(table, place, self.buffer.as_mut_ptr()) }
                    .context("cannot read a workload")?;
                // SAFETY: the kernel has written this many entries, each of which is plain integers.
                unsafe { self.buffer.set_len(self.shape.rows as usize) };
                for EntryValue(entry) in self.buffer.iter().filter(|value| value.0.epoch == epoch) {
                    let key = (Cell::from_bits(entry.series).key(), entry.workload);
                    read.entry(key).or_insert(Entry::ZERO).merge(entry);
                }
            }
        }
        Ok(read)
    }

    /// The cgroup with this serial number, if the probe has recorded it.
    pub fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>> {
        match self.cgroups.get(&workload, 0) {
            Ok(CgroupValue(cgroup)) => Ok(Some(SeenCgroup { css: cgroup.css, path: path(&cgroup.names) })),
            Err(MapError::KeyNotFound) => Ok(None),
            Err(error) => Err(error).context("cannot read a cgroup"),
        }
    }

    /// The maximum number of cgroups that the probe can record.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room as usize
    }

    /// Makes the probe record a cgroup again at its next I/O in a new epoch. Until then the old record stays.
    pub fn mark_cgroup_stale(&mut self, workload: u64) -> Result<()> {
        match self.cgroups.get(&workload, 0) {
            Ok(CgroupValue(record)) if record.is_stale == 0 => {
                let stale = CgroupValue(Cgroup { is_stale: 1, ..record });
                self.cgroups
                    .insert(workload, stale, BPF_EXIST)
                    .context("cannot change the record of a cgroup")
            }
            Ok(_) | Err(MapError::KeyNotFound) => Ok(()),
            Err(error) => Err(error).context("cannot read a cgroup"),
        }
    }

    /// Removes the record of a cgroup to make room for another one.
    pub fn forget_cgroup(&mut self, workload: u64) -> Result<()> {
        match self.cgroups.remove(&workload) {
            Err(error) if !matches!(error, MapError::KeyNotFound) => {
                Err(error).context("cannot remove a cgroup")
            }
            _ => Ok(()),
        }
    }
}

/// The tables from this bank on, with the numbers of their banks.
fn numbered(tables: &[MapData], first: usize) -> Vec<(u32, BorrowedFd<'_>)> {
    (0..).zip(tables.iter().map(|table| table.fd().as_fd())).skip(first).collect()
}

/// Whether a cgroup still exists.
pub(super) fn exists(programs: &Programs, workload: u64, cgroup: &SeenCgroup) -> Result<bool> {
    let result = programs::run(programs.cgroup_exists.as_ref(), &[cgroup.css, workload])
        .context("cannot check whether a cgroup exists")?;
    Ok(result == 1)
}

/// The path of a cgroup, from the names of its directory and its ancestors. `/...` stands for levels that were not recorded.
fn path(names: &[[u8; NAME_BYTES]; LEVELS]) -> String {
    let names = names.iter().map(|name| name.split(|&byte| byte == 0).next().unwrap_or_default());
    let names: Vec<_> = names.take_while(|name| !name.is_empty()).map(String::from_utf8_lossy).collect();
    let mut path = if names.len() == LEVELS { "/...".to_owned() } else { String::new() };
    for name in names.iter().rev() {
        path.push('/');
        path.push_str(name);
    }
    if path.is_empty() { "/".to_owned() } else { path }
}

#[cfg(test)]
mod tests {
    use biolat_common::workload::{LEVELS, MAX_PLACES, NAME_BYTES};

    use super::{path, tables, workload_bytes};
    use crate::Room;

    fn names(names: &[&str]) -> [[u8; NAME_BYTES]; LEVELS] {
        let mut bytes = [[0; NAME_BYTES]; LEVELS];
        for (bytes, name) in bytes.iter_mut().zip(names) {
            bytes[..name.len()].copy_from_slice(name.as_bytes());
            // Left over from a longer name.
            bytes[name.len() + 1..].fill(b'x');
        }
        bytes
    }

    #[test]
    fn paths_begin_at_the_root() {
        assert_eq!(path(&names(&[])), "/");
        assert_eq!(path(&names(&["a.service", "system.slice", ""])), "/system.slice/a.service");
        assert_eq!(path(&names(&["x"; LEVELS])), format!("/...{}", "/x".repeat(LEVELS)));
    }

    #[test]
    fn tables_respect_memory_limits() {
        for (cpus, slots, most, hashes) in [
            // 256 workloads, each with reads and writes on two devices, times two.
            (1, 4096, 4 << 20, 2048),
            (2, 16, 4 << 20, 2048),
            (16, 32, 8 << 20, 780),
            (384, 48, 64 << 20, 218),
            (384, 4096, 64 << 20, 133),
        ] {
            let tables = tables(256, slots, cpus);
            let room = Room { banks: 1, rows: cpus as u32, first_rows: 0, by_node: false };
            assert!(workload_bytes(256, slots, room) <= most, "{cpus} CPUs: {tables:?}");
            assert_eq!(tables.hashes, hashes, "{cpus} CPUs: {tables:?}");
            assert!(2 * tables.entries() <= MAX_PLACES);
        }
        assert_eq!(tables(0, 16, 2).slots, 0);
    }
}
