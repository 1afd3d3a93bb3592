//! The probe's workload tables: see [`biolat_common::workload`].

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use std::{
    collections::BTreeMap,
    iter,
    ops::RangeInclusive,
    os::fd::{AsFd as _, BorrowedFd},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, ArrayOfMaps, HashMap, IterableMap as _, Map, MapData, MapError, PerCpuArray};
use biolat_common::{
    series::Key,
    slot::Cell,
    workload::{Cgroup, Entry, LEVELS, MAX_BYTES_OF_CPU, NAME_BYTES, PROBES, Places, Tables},
};

use super::{
    cpus::PossibleCpus,
    grace_periods::GracePeriods,
    map_set::MapSet,
    programs::{self, Programs},
    sys,
};

/// Update an entry only if its key exists.
const BPF_EXIST: u64 = 2;

/// The map of the probe's variables whose initial value is not zero. The epoch is the only one.
const DATA: &str = ".data";

/// The map that holds the understudy's tables.
pub(super) const UNDERSTUDY_WORKLOADS: &str = "WORKLOADS_2";

/// Upper limit on the kernel memory for both tables: this much per CPU, with the total kept within these bounds.
const CPU_BYTES: u64 = 512 << 10;
const BYTES: RangeInclusive<u64> = MAX_BYTES_OF_CPU..=64 << 20;

/// Number of entries per workload in a table: reads and writes on two devices, doubled to keep collisions rare.
const ENTRIES_PER_WORKLOAD: u64 = 8;

/// Returns the table sizes for this number of workloads, slots and CPUs.
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

/// Kernel memory for both tables, for this number of workloads, slots and CPUs, in bytes.
#[must_use]
pub fn workload_bytes(workloads: u32, slots: u32, cpus: u64) -> u64 {
    if workloads == 0 { 0 } else { bytes(tables(workloads, slots, cpus), cpus) }
}

fn bytes(tables: Tables, cpus: u64) -> u64 {
    2 * u64::from(tables.entries()) * size_of::<Entry>() as u64 * cpus
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
    entries: PerCpuArray<MapData, EntryValue>,
    /// The map to which the understudy's tables are added.
    understudy: ArrayOfMaps<MapData>,
    /// The understudy's tables; `None` until they are added.
    understudy_entries: Option<PerCpuArray<MapData, EntryValue>>,
    used: Array<MapData, PlacesValue>,
    used_buffer: Box<PlacesValue>,
    cgroups: HashMap<MapData, u64, CgroupValue>,
    room: u32,
    epoch_map: Array<MapData, u64>,
    grace_periods: GracePeriods,
    tables: Tables,
    cpus: PossibleCpus,
    /// The epoch that the probe counts in.
    epoch: u64,
    resting: Resting,
    buffer: Vec<EntryValue>,
}

impl WorkloadMaps {
    pub(super) fn from_maps(
        maps: &mut MapSet<'_>,
        tables: Tables,
        cpus: PossibleCpus,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let mut take = |name| maps.take(name);
        let epoch_map: Array<_, u64> = take(DATA)?.try_into()?;
        let epoch = epoch_map.get(&0, 0).context("cannot read the epoch")?;
        let entries: PerCpuArray<_, _> = take("WORKLOADS")?.try_into()?;
        ensure!(entries.len() >= tables.places(), "the probe's workload tables are too small");
        let cgroups: HashMap<_, _, _> = take("CGROUPS")?.try_into()?;
        let room = cgroups.map().info().context("cannot read the size of a map")?.max_entries();
        let understudy = take(UNDERSTUDY_WORKLOADS)?;
        Ok(Self {
            entries,
            understudy: ArrayOfMaps::try_from(understudy)?,
            understudy_entries: None,
            used: take("WORKLOADS_USED")?.try_into()?,
            // SAFETY: integers, for which zero is valid. Not created on the stack, whose pages would stay resident.
            used_buffer: unsafe { Box::new_zeroed().assume_init() },
            cgroups,
            room,
            epoch_map,
            grace_periods,
            tables,
            cpus,
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

    /// Uses the understudy's tables, if another process has added them.
    pub(super) fn continue_with(&mut self, understudy: Option<MapData>) -> Result<()> {
        let typed = |map| PerCpuArray::try_from(Map::from_map_data(map)?);
        self.understudy_entries = understudy.map(typed).transpose()?;
        Ok(())
    }

    /// Adds the understudy's tables, if they have not been added yet.
    pub(super) fn add_understudy_table(&mut self) -> Result<()> {
        if self.understudy_entries.is_some() {
            return Ok(());
        }
        let entries: PerCpuArray<_, EntryValue> = PerCpuArray::create(self.tables.places(), 0)
            .context("cannot create the understudy's workload tables")?;
        self.understudy.set(0, entries.map(), 0).context("cannot add workload tables to the understudy")?;
        self.understudy_entries = Some(entries);
        Ok(())
    }

    /// The understudy's tables, if they have been added.
    pub(super) fn understudy_table(&self) -> Option<BorrowedFd<'_>> {
        self.understudy_entries.as_ref().map(|entries| entries.map().fd().as_fd())
    }

    /// Number of slots that are counted by workload. Series in later slots are not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.tables.slots
    }

    /// Kernel memory of the tables over all CPUs and both programs, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let programs = 1 + u64::from(self.understudy_entries.is_some());
        programs * bytes(self.tables, self.cpus.get() as u64)
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
            for entries in iter::once(&self.entries).chain(&self.understudy_entries) {
                self.cpus.read(entries, place, &mut self.buffer).context("cannot read a workload")?;
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
            assert!(workload_bytes(256, slots, cpus) <= most, "{cpus} CPUs: {tables:?}");
            assert_eq!(tables.hashes, hashes, "{cpus} CPUs: {tables:?}");
            assert!(2 * tables.entries() <= MAX_PLACES);
        }
        assert_eq!(tables(0, 16, 2).slots, 0);
    }
}
