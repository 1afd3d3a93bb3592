//! The probe's maps, typed. `biolat_common::slot` explains them.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::{collections::BTreeMap, os::fd::BorrowedFd, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use aya::maps::{Array, ArrayOfMaps, HashMap, IterableMap as _, Map, MapData, MapError, PerCpuArray, Queue};
use biolat_common::{
    lost::{Counts, REASONS},
    series::Key,
    slot::{CHUNK_SLOTS, Cell, SLOTS},
    tags::TagWaits,
};

use biolat_system::cpus::CpuNodes;

use super::{
    banks::{Banks, Plan, Room},
    cpus::{self, PossibleCpus},
    grace_periods::GracePeriods,
    map_set::MapSet,
    series_arrays::{SeriesArrays, series_bytes},
    series_maps::{SeriesMaps, SlotReading},
    sys,
    tag_waits::TagWaitMap,
};

const LOST: &str = "LOST";
const UNDERSTUDY_LOST: &str = "LOST_2";
/// The first bank's counters of the slots that exist from the start.
const SERIES: &str = "SERIES";
/// The arrays of chunks, of the first program and of the understudy.
pub(super) const CHUNKS_OF_PROGRAMS: [&str; 2] = ["MORE", "SERIES_2"];
/// Where the counters of each CPU are.
pub(super) const CPUS: &str = "CPUS";
/// The variable that makes the first program mark completions.
const MARKING: &str = ".data.marking";

/// Insert a key only if it does not exist.
const BPF_NOEXIST: u64 = 1;

/// The maps of the series and their slots, and of the losses.
pub struct Maps {
    table: Array<MapData, u64>,
    index: HashMap<MapData, u64, u32>,
    /// Buffers for the keys and values of the whole index.
    entries: (Vec<u64>, Vec<u32>),
    free: Queue<MapData, u32>,
    lost: PerCpuArray<MapData, Counts>,
    series: SeriesArrays,
    /// Number of chunks in which every bank has an array.
    chunks: usize,
    banks: Banks,
    understudy: UnderstudyMaps,
    cpus: PossibleCpus,
    /// Whether requests are counted by size.
    sizes: bool,
    losses: Vec<Counts>,
    /// `None` in a probe that was kept by a version without it.
    tag_waits: Option<TagWaitMap>,
    /// Waits for runs of the probe to end.
    pub grace_periods: GracePeriods,
}

/// The understudy's maps.
struct UnderstudyMaps {
    lost: PerCpuArray<MapData, Counts>,
    /// Empty until they are added.
    series: SeriesArrays,
    marking: Array<MapData, u64>,
    /// The grace period after which all runs of the first program mark completions; `None` if it has not been requested yet.
    runs_before_marking: Option<u64>,
}

impl UnderstudyMaps {
    fn from_maps(set: &mut MapSet<'_>, rows: u32, sizes: bool) -> Result<Self> {
        let chunks = array_of_maps(set.take(CHUNKS_OF_PROGRAMS[1])?)?;
        Ok(Self {
            lost: set.take(UNDERSTUDY_LOST)?.try_into()?,
            series: SeriesArrays::new(None, chunks, rows, 0, sizes)?,
            marking: set.take(MARKING)?.try_into()?,
            runs_before_marking: None,
        })
    }
}

impl Maps {
    /// Takes the maps of a probe that has just been loaded, with or without size counters. Creates counters for this many slots
    /// in all banks, and pushes the slots to the free queue.
    pub(super) fn of_new_probe(
        set: &mut MapSet<'_>,
        slots: u32,
        plan: Plan,
        sizes: bool,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let lost = set.take(LOST)?.try_into()?;
        let cpus = PossibleCpus::of_kernel(&lost)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let banks = Banks::of_new_probe(set.take(CPUS)?.try_into()?, plan);
        let mut maps = Self::new(set, lost, banks, slots, sizes, cpus, grace_periods)?;
        maps.provide((slots / CHUNK_SLOTS) as usize)?;
        for slot in 0..slots {
            maps.push_free(slot)?;
        }
        maps.banks.activate()?;
        Ok(maps)
    }

    /// Takes the maps of an attached probe that was loaded with this many slots. `series` are its chunks by number and bank, for
    /// the first program and for the understudy.
    pub(super) fn of_attached_probe(
        set: &mut MapSet<'_>,
        banks: Banks,
        slots: u32,
        sizes: bool,
        series: [Vec<Vec<Option<MapData>>>; 2],
        cpus: PossibleCpus,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let lost = set.take(LOST)?.try_into()?;
        let mut maps = Self::new(set, lost, banks, slots, sizes, cpus, grace_periods)?;
        let [first, understudy] = series;
        maps.series.continue_with(first)?;
        maps.understudy.series.continue_with(understudy)?;
        maps.chunks = maps.series.complete_chunks(maps.banks.all().len());
        Ok(maps)
    }

    /// Leaves out chunks without counters for the attached understudy, because a system call failed. Their slots are not used yet.
    pub(super) fn require_understudy_series(&mut self) {
        self.chunks = self.chunks.min(self.understudy.series.complete_chunks(self.banks.all().len()));
    }

    fn new(
        set: &mut MapSet<'_>,
        lost: PerCpuArray<MapData, Counts>,
        banks: Banks,
        slots: u32,
        sizes: bool,
        cpus: PossibleCpus,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let rows = banks.room().rows;
        let (first, chunks) =
            (array_data(set.take(SERIES)?)?, array_of_maps(set.take(CHUNKS_OF_PROGRAMS[0])?)?);
        Ok(Self {
            table: set.take("TABLE")?.try_into()?,
            index: set.take("INDEX")?.try_into()?,
            entries: (vec![0; SLOTS as usize], vec![0; SLOTS as usize]),
            free: set.take("FREE")?.try_into()?,
            lost,
            series: SeriesArrays::new(Some(first), chunks, rows, slots, sizes)?,
            chunks: 0,
            banks,
            understudy: UnderstudyMaps::from_maps(set, rows, sizes)?,
            cpus,
            sizes,
            losses: Vec::new(),
            tag_waits: TagWaitMap::from_maps(set)?,
            grace_periods,
        })
    }

    /// Creates the missing counters of the first `chunks` chunks in all banks, for the understudy too if it has any.
    fn provide(&mut self, chunks: usize) -> Result<()> {
        self.series.provide(chunks, self.banks.all())?;
        if self.understudy.series.chunks() > 0 {
            self.understudy.series.provide(chunks, self.banks.all())?;
        }
        self.chunks = chunks;
        Ok(())
    }

    /// Adds understudy counters for every slot.
    pub(super) fn add_understudy_series(&mut self) -> Result<()> {
        self.understudy.series.provide(self.chunks, self.banks.all())
    }

    /// Gives rows to CPUs that have come online.
    pub(super) fn add_cpus(&mut self, online: &[usize], nodes: &CpuNodes) {
        self.banks.add(online, nodes);
    }

    /// Creates the missing counters of all banks. The probe does not use them until [`Self::activate_cpus`].
    pub(super) fn provide_banks(&mut self) -> Result<()> {
        self.provide(self.chunks)
    }

    /// Lets the probe use the counters of all CPUs that have some.
    pub(super) fn activate_cpus(&mut self) -> Result<()> {
        self.banks.activate()
    }

    /// The CPUs that have counters.
    pub(super) fn banks(&self) -> &Banks {
        &self.banks
    }

    /// The chunks of the first program and of the understudy, with their indices.
    pub(super) fn chunks(&self) -> [Vec<(u32, BorrowedFd<'_>)>; 2] {
        [&self.series, &self.understudy.series].map(|series| series.all().collect())
    }

    /// Makes the first program mark completions. Returns `true` once all of its runs do so, or `false` if a preempted run has not
    /// ended within the timeout.
    pub(super) fn begin_marking(&mut self, timeout: Duration) -> Result<bool> {
        const CONTEXT: &str = "cannot make the probe mark completions";
        let runs_before = match self.understudy.runs_before_marking {
            Some(grace_period) => grace_period,
            None => {
                self.understudy.marking.set(0, 1, 0).context(CONTEXT)?;
                *self.understudy.runs_before_marking.insert(self.grace_periods.request())
            }
        };
        Ok(self.grace_periods.wait(runs_before, timeout))
    }

    /// Kernel memory for the counters of all slots in both programs, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.series.bytes() + self.understudy.series.bytes()
    }

    /// Kernel memory for the counters of one slot, in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        slot_bytes(self.sizes, self.banks.room())
    }

    /// Number of possible CPUs: each has its own copy of the values in per-CPU maps.
    pub(super) fn cpus(&self) -> PossibleCpus {
        self.cpus
    }

    /// Number of slots, free or in use.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.chunks as u32 * CHUNK_SLOTS
    }

    /// The waits for a tag of each device that has had some.
    pub fn tag_waits(&self) -> Result<BTreeMap<u64, TagWaits>> {
        self.tag_waits.as_ref().map_or_else(|| Ok(BTreeMap::new()), TagWaitMap::read)
    }

    /// Forgets the waits of a device that is gone.
    pub fn forget_tag_waits(&mut self, device: u64) {
        if let Some(map) = &mut self.tag_waits {
            map.forget(device);
        }
    }

    /// Lost completions by reason, summed over the CPUs and both programs. Also contains the number of completions that the first
    /// program left to the understudy, and how many the understudy took.
    pub fn losses(&mut self) -> Result<Counts> {
        let mut sum = [0_u64; REASONS];
        for map in [&self.lost, &self.understudy.lost] {
            self.cpus.read(map, 0, &mut self.losses).context("cannot read the losses")?;
            for cpu in &self.losses {
                for (sum, count) in sum.iter_mut().zip(cpu) {
                    *sum += count;
                }
            }
        }
        Ok(sum)
    }
}

impl SeriesMaps for Maps {
    fn add_chunk(&mut self) -> Result<Option<u32>> {
        if self.slots() == SLOTS {
            return Ok(None);
        }
        let first = self.slots();
        // The new slots are not used until this has succeeded.
        self.provide(self.chunks + 1)?;
        Ok(Some(first))
    }

    fn index(&mut self) -> Result<Vec<(Key, u32)>> {
        let (keys, slots) = &mut self.entries;
        // SAFETY: aya has checked that keys and values of the map have these types.
        let read = unsafe { sys::read_batch(self.index.map(), keys, slots) };
        let read = read.context("cannot read the index of series")?;
        Ok(keys[..read].iter().map(|&key| Key::from_bits(key)).zip(slots[..read].iter().copied()).collect())
    }

    fn pop_free(&mut self) -> Result<Option<u32>> {
        match self.free.pop(0) {
            Ok(slot) => Ok(Some(slot)),
            Err(MapError::ElementNotFound) => Ok(None),
            Err(error) => Err(error).context("cannot pop a slot from the free queue"),
        }
    }

    fn push_free(&mut self, slot: u32) -> Result<()> {
        self.free.push(slot, 0).context("cannot push a slot to the free queue")
    }

    fn insert(&mut self, key: Key, slot: u32) -> Result<bool> {
        match self.index.insert(key.bits(), slot, BPF_NOEXIST) {
            Ok(()) => Ok(true),
            Err(MapError::SyscallError(error)) if error.io_error.raw_os_error() == Some(libc::EEXIST) => {
                Ok(false)
            }
            Err(error) => Err(error).context("cannot add a series to the index"),
        }
    }

    fn remove(&mut self, key: Key) -> Result<()> {
        match self.index.remove(&key.bits()) {
            Err(error) if !matches!(error, MapError::KeyNotFound) => {
                Err(error).context("cannot remove a series from the index")
            }
            _ => Ok(()),
        }
    }

    fn cell(&mut self, index: u32) -> Result<Cell> {
        Ok(Cell::from_bits(self.table.get(&index, 0).context("cannot read the table of series")?))
    }

    fn set_cell(&mut self, index: u32, cell: Cell) -> Result<()> {
        self.table.set(index, cell.bits(), 0).context("cannot change the table of series")
    }

    fn read(&mut self, slot: u32) -> Result<SlotReading> {
        ensure!(slot < self.slots(), "the index refers to a slot that does not exist");
        let (banks, cpus) = (self.banks.all(), self.banks.cpu_ids());
        let mut reading = self.series.read(slot, banks, cpus)?;
        if self.understudy.series.chunks() > 0 {
            reading.add(&self.understudy.series.read(slot, banks, cpus)?);
        }
        Ok(reading)
    }

    fn request_grace_period(&mut self) -> u64 {
        self.grace_periods.request()
    }

    fn has_ended(&mut self, grace_period: u64) -> bool {
        self.grace_periods.has_ended(grace_period)
    }

    fn wait_for_runs(&mut self) {
        self.grace_periods.wait_to_the_end(self.grace_periods.request());
    }
}

/// aya's conversion is generic over the type of the inner maps, so the target must be named.
pub(super) fn array_of_maps(map: Map) -> Result<ArrayOfMaps<MapData>> {
    Ok(ArrayOfMaps::try_from(map)?)
}

/// The data of an array, whatever its values are.
pub(super) fn array_data(map: Map) -> Result<MapData> {
    match map {
        Map::Array(data) => Ok(data),
        _ => bail!("one of the probe's maps is not an array"),
    }
}

/// Kernel memory for the counters of one series in this room, with or without size counters, in bytes.
#[must_use]
pub fn slot_bytes(sizes: bool, room: Room) -> u64 {
    room.cpus() * u64::from(series_bytes(sizes))
}
