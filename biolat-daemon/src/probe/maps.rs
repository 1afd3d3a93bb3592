//! Typed access to the probe's maps, the only one: what they mean is in `biolat_common::slot`.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait")]

use std::os::fd::{AsFd, BorrowedFd};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, HashMap, IterableMap, Map, MapData, MapError, PerCpuArray, Queue},
};
use biolat_common::{
    lost::{Counts, REASONS},
    series::{Key, Series},
    slot::{CHUNK_SLOTS, Cell, SLOTS, table_cell},
};

use super::sys;

/// A series as aya wants a map's value.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Value(Series);

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for Value {}

/// Room for a value of each possible CPU, read into again and again.
pub struct Counters(Vec<Value>);

impl Counters {
    /// For a map of so many possible CPUs.
    #[must_use]
    pub fn of_cpus(cpus: usize) -> Self {
        Self(vec![Value(Series::ZERO); cpus])
    }

    /// An entry of a map, summed over the CPUs.
    pub fn read(&mut self, map: BorrowedFd<'_>, index: u32) -> Result<Series> {
        sys::read_per_cpu(map, index, &mut self.0).context("cannot read a series")?;
        let mut sum = Series::ZERO;
        for Value(cpu) in &self.0 {
            sum.merge(cpu);
        }
        Ok(sum)
    }
}

/// The maps.
pub struct Maps {
    table: Array<MapData, u64>,
    index: HashMap<MapData, u64, u32>,
    /// As many keys and values as the index may hold.
    entries: (Vec<u64>, Vec<u32>),
    free: Queue<MapData, u32>,
    lost: PerCpuArray<MapData, Counts>,
    /// The slots foreseen, and how many they are.
    series: PerCpuArray<MapData, Value>,
    foreseen: u32,
    /// Those beyond, in chunks.
    more: ArrayOfMaps<MapData>,
    chunks: Vec<PerCpuArray<MapData, Value>>,
    counters: Counters,
    losses: Vec<Counts>,
}

impl Maps {
    /// Takes the maps out of an object that was loaded with room for so many series, and hands that to the probe.
    pub(super) fn from_object(object: &mut Ebpf, foreseen: u32) -> Result<Self> {
        let cpus = cpus()?;
        let mut take =
            |name: &str| object.take_map(name).with_context(|| format!("the probe has no map {name}"));
        let mut maps = Self {
            table: take("TABLE")?.try_into()?,
            index: take("INDEX")?.try_into()?,
            entries: (vec![0; SLOTS as usize], vec![0; SLOTS as usize]),
            free: take("FREE")?.try_into()?,
            lost: take("LOST")?.try_into()?,
            series: take("SERIES")?.try_into()?,
            foreseen,
            more: array_of_maps(take("MORE")?)?,
            chunks: Vec::new(),
            counters: Counters::of_cpus(cpus),
            losses: vec![[0; REASONS]; cpus],
        };
        for slot in 0..foreseen {
            maps.release(slot)?;
        }
        Ok(maps)
    }

    /// What the kernel holds for one slot.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        size_of_val(self.counters.0.as_slice()) as u64
    }

    /// Slots that there are, used or not.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.foreseen + self.chunks.len() as u32 * CHUNK_SLOTS
    }

    /// Makes another chunk of slots and hands them to the probe. `false`: the most that there can be is reached.
    pub fn grow(&mut self) -> Result<bool> {
        let slots = self.slots();
        if slots == SLOTS {
            return Ok(false);
        }
        let chunk = PerCpuArray::create(CHUNK_SLOTS, 0).context("cannot make a map for more series")?;
        self.more
            .set(slots / CHUNK_SLOTS, IterableMap::map(&chunk), 0)
            .context("cannot hand a map to the probe")?;
        self.chunks.push(chunk);
        for slot in slots..slots + CHUNK_SLOTS {
            self.release(slot)?;
        }
        Ok(true)
    }

    /// Hands a slot to the probe, for the next series that needs one.
    pub fn release(&mut self, slot: u32) -> Result<()> {
        self.free.push(slot, 0).context("cannot hand a slot to the probe")
    }

    /// Every series that there is, and its slot.
    pub fn index(&mut self) -> Result<Vec<(Key, u32)>> {
        let map = IterableMap::map(&self.index).fd().as_fd();
        let (keys, slots) = &mut self.entries;
        let read = sys::read_hash(map, keys, slots).context("cannot read the index of series")?;
        Ok(keys[..read].iter().map(|&key| Key::from_bits(key)).zip(slots[..read].iter().copied()).collect())
    }

    /// Takes a series out of the index and the table. Its slot may be written until every run of the probe
    /// that is under way has ended, and must not be given away before.
    pub fn remove(&mut self, key: Key) -> Result<()> {
        if self.owner(key)?.is_of(key) {
            self.table.set(table_cell(key), Cell::EMPTY.bits(), 0)?;
        }
        match self.index.remove(&key.bits()) {
            Err(error) if !matches!(error, MapError::KeyNotFound) => {
                Err(error).context("cannot take a series out of the index")
            }
            _ => Ok(()),
        }
    }

    /// Puts a series into the table, where the probe finds it at once. `false`: one that is likely to be busier stands
    /// there, and the probe goes on to find this one in the index.
    pub fn publish(&mut self, key: Key, slot: u32) -> Result<bool> {
        let owner = self.owner(key)?;
        if owner.yields_to(key) {
            self.table.set(table_cell(key), Cell::new(key, slot).bits(), 0)?;
            return Ok(true);
        }
        Ok(owner.is_of(key))
    }

    fn owner(&self, key: Key) -> Result<Cell> {
        Ok(Cell::from_bits(self.table.get(&table_cell(key), 0).context("cannot read the table of series")?))
    }

    /// The counters of a slot, summed over the CPUs.
    pub fn read(&mut self, slot: u32) -> Result<Series> {
        let (map, index) = match slot.checked_sub(self.foreseen) {
            None => (&self.series, slot),
            Some(beyond) => {
                let chunk = self.chunks.get((beyond / CHUNK_SLOTS) as usize);
                (chunk.context("the index names a slot beyond the end")?, beyond % CHUNK_SLOTS)
            }
        };
        let map = IterableMap::map(map).fd().as_fd();
        self.counters.read(map, index)
    }

    /// Losses by reason, summed over the CPUs.
    pub fn losses(&mut self) -> Result<Counts> {
        let map = IterableMap::map(&self.lost).fd().as_fd();
        sys::read_per_cpu(map, 0, &mut self.losses).context("cannot read the losses")?;
        let mut sum = [0_u64; REASONS];
        for cpu in &self.losses {
            for (sum, count) in sum.iter_mut().zip(cpu) {
                *sum += count;
            }
        }
        Ok(sum)
    }
}

/// CPUs that each per-CPU map has room for.
pub(super) fn cpus() -> Result<usize> {
    aya::util::nr_cpus().map_err(|(path, error)| {
        anyhow::Error::new(error).context(format!("cannot read {path} to count the CPUs"))
    })
}

/// A map of maps is typed by what it holds, so that it has no plain conversion.
fn array_of_maps(map: Map) -> Result<ArrayOfMaps<MapData>> {
    Ok(ArrayOfMaps::try_from(map)?)
}
