//! The probe's maps, typed. `biolat_common::slot` explains them.

#![allow(unsafe_code, reason = "reads of maps write to buffers")]

use std::{collections::BTreeMap, os::fd::BorrowedFd, time::Duration};

use anyhow::{Context as _, Result};
use aya::maps::{Array, ArrayOfMaps, HashMap, IterableMap as _, Map, MapData, MapError, PerCpuArray, Queue};
use biolat_common::{
    lost::{Counts, REASONS},
    series::Key,
    slot::{Cell, SLOTS},
    tags::TagWaits,
};

use super::{
    cpus::{self, PossibleCpus},
    grace_periods::GracePeriods,
    map_set::MapSet,
    series_maps::{SeriesMaps, SlotReading},
    slot_arrays::{self, SlotArrays},
    sys,
    tag_waits::TagWaitMap,
};

const LOST: &str = "LOST";
const UNDERSTUDY_LOST: &str = "LOST_2";
/// The understudy's array of chunks.
pub(super) const UNDERSTUDY_SERIES: &str = "SERIES_2";
/// The variable that makes the first program mark completions.
const MARKING: &str = ".data.marking";
/// The array of chunks that are added after startup.
pub(super) const MORE: &str = "MORE";

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
    slots: Box<dyn SlotArrays>,
    /// The array of chunks that are added after startup.
    more: ArrayOfMaps<MapData>,
    understudy: UnderstudyMaps,
    cpus: PossibleCpus,
    losses: Vec<Counts>,
    /// `None` in a probe that was kept by a version without it.
    tag_waits: Option<TagWaitMap>,
    /// Waits for runs of the probe to end.
    pub grace_periods: GracePeriods,
}

/// The understudy's maps.
struct UnderstudyMaps {
    lost: PerCpuArray<MapData, Counts>,
    series: ArrayOfMaps<MapData>,
    marking: Array<MapData, u64>,
    /// The grace period after which all runs of the first program mark completions; `None` if it has not been requested yet.
    runs_before_marking: Option<u64>,
}

impl UnderstudyMaps {
    fn from_maps(set: &mut MapSet<'_>) -> Result<Self> {
        Ok(Self {
            lost: set.take(UNDERSTUDY_LOST)?.try_into()?,
            series: array_of_maps(set.take(UNDERSTUDY_SERIES)?)?,
            marking: set.take(MARKING)?.try_into()?,
            runs_before_marking: None,
        })
    }
}

impl Maps {
    /// Takes the maps of a probe that has just been loaded with this many slots, with or without size counters. Pushes the slots
    /// to the free queue.
    pub(super) fn of_new_probe(
        set: &mut MapSet<'_>,
        slots: u32,
        sizes: bool,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let lost = set.take(LOST)?.try_into()?;
        let cpus = PossibleCpus::of_kernel(&lost)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let mut maps = Self::new(set, lost, slots, sizes, cpus, grace_periods)?;
        for slot in 0..slots {
            maps.push_free(slot)?;
        }
        Ok(maps)
    }

    /// Takes the maps of an attached probe that was loaded with this many slots. `chunks` are the chunks added
    /// later, for the first program and for the understudy.
    pub(super) fn of_attached_probe(
        set: &mut MapSet<'_>,
        slots: u32,
        sizes: bool,
        chunks: [Vec<MapData>; 2],
        cpus: PossibleCpus,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        let lost = set.take(LOST)?.try_into()?;
        let mut maps = Self::new(set, lost, slots, sizes, cpus, grace_periods)?;
        maps.slots.continue_with(chunks)?;
        Ok(maps)
    }

    fn new(
        set: &mut MapSet<'_>,
        lost: PerCpuArray<MapData, Counts>,
        slots: u32,
        sizes: bool,
        cpus: PossibleCpus,
        grace_periods: GracePeriods,
    ) -> Result<Self> {
        Ok(Self {
            table: set.take("TABLE")?.try_into()?,
            index: set.take("INDEX")?.try_into()?,
            entries: (vec![0; SLOTS as usize], vec![0; SLOTS as usize]),
            free: set.take("FREE")?.try_into()?,
            lost,
            slots: slot_arrays::from_map(set.take("SERIES")?, slots, sizes, cpus)?,
            more: array_of_maps(set.take(MORE)?)?,
            understudy: UnderstudyMaps::from_maps(set)?,
            cpus,
            losses: Vec::new(),
            tag_waits: TagWaitMap::from_maps(set)?,
            grace_periods,
        })
    }

    /// The chunks added after startup, from index `first` on.
    pub fn chunks_from(&self, first: usize) -> Vec<BorrowedFd<'_>> {
        self.slots.chunks_from(first)
    }

    /// The understudy's chunks.
    pub(super) fn understudy_chunks(&self) -> Vec<BorrowedFd<'_>> {
        self.slots.understudy_chunks()
    }

    /// Adds understudy counters for every slot.
    pub(super) fn add_understudy_chunks(&mut self) -> Result<()> {
        self.slots.add_understudy_chunks(&mut self.understudy.series)
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
        self.slots.bytes()
    }

    /// Kernel memory for the counters of one slot, in bytes.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        self.slots.slot_bytes()
    }

    /// Number of possible CPUs: each has its own copy of every counter.
    pub(super) fn cpus(&self) -> PossibleCpus {
        self.cpus
    }

    /// Number of slots, free or in use.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots.slots()
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
        let first = self.slots.add_chunk(&mut self.more)?;
        // The new slots are not used until this has succeeded.
        if !self.slots.understudy_chunks().is_empty() {
            self.add_understudy_chunks()?;
        }
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
        self.slots.read(slot)
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
