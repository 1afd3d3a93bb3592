//! The per-CPU arrays with the counters of the slots. Whether they have size counters is chosen when the probe is loaded.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use std::os::fd::{AsFd as _, BorrowedFd};

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, ArrayOfMaps, IterableMap as _, Map, MapData, PerCpuArray};
use biolat_common::{
    series::{Phase, Series},
    size::Counters,
    slot::CHUNK_SLOTS,
};

use super::{cpus::PossibleCpus, series_maps::SlotReading, sys};

/// The value of a slot on one CPU.
pub trait SlotValue: aya::Pod {
    const HAS_SIZES: bool;
    /// Adds this CPU's counters to the sum.
    fn add_to(&self, sum: &mut Counters);
    /// Number of requests that have ended on this CPU. It wraps, like all counters.
    fn completions(&self) -> u32;
}

/// The counters of a series, with size counters.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct CountersValue(Counters);

/// The counters of a series, without size counters.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct SeriesValue(Series);

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for CountersValue {}

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for SeriesValue {}

impl From<Counters> for CountersValue {
    fn from(counters: Counters) -> Self {
        Self(counters)
    }
}

impl SlotValue for CountersValue {
    const HAS_SIZES: bool = true;

    fn add_to(&self, sum: &mut Counters) {
        sum.merge(&self.0);
    }

    fn completions(&self) -> u32 {
        self.0.sizes.requests.iter().fold(0, |sum, count| sum.wrapping_add(*count))
    }
}

impl SlotValue for SeriesValue {
    const HAS_SIZES: bool = false;

    fn add_to(&self, sum: &mut Counters) {
        sum.series.merge(&self.0);
    }

    fn completions(&self) -> u32 {
        self.0.cells.iter().fold(0, |sum, cell| sum.wrapping_add(cell[Phase::Total as usize]))
    }
}

/// A reusable buffer for the values of a slot.
pub struct SlotBuffer<V>(Vec<V>);

impl<V> Default for SlotBuffer<V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<V: SlotValue> SlotBuffer<V> {
    /// Reads an entry of a per-CPU array.
    fn read(&mut self, map: &PerCpuArray<MapData, V>, index: u32, cpus: PossibleCpus) -> Result<SlotReading> {
        cpus.read(map, index, &mut self.0).context("cannot read a series")?;
        Ok(self.sum())
    }

    /// Reads an entry of a plain array whose value contains the counters of `CPUS` CPUs. The collector's benchmark uses this to
    /// simulate machines with more CPUs than it runs on.
    pub fn read_plain<const CPUS: usize>(
        &mut self,
        map: &Array<MapData, [V; CPUS]>,
        index: u32,
    ) -> Result<SlotReading> {
        self.0.clear();
        self.0.reserve(CPUS);
        // SAFETY: there is room for the array's value, whose size aya has checked. The map is not per-CPU.
        unsafe { sys::read_entry(map.map(), index, self.0.as_mut_ptr()) }.context("cannot read a series")?;
        // SAFETY: the kernel has written this many values, each of which is plain integers.
        unsafe { self.0.set_len(CPUS) };
        Ok(self.sum())
    }

    fn sum(&self) -> SlotReading {
        let mut sum = Counters::ZERO;
        for cpu in &self.0 {
            cpu.add_to(&mut sum);
        }
        SlotReading {
            sum,
            completions: self.0.iter().map(SlotValue::completions).collect(),
            has_sizes: V::HAS_SIZES,
        }
    }
}

/// The arrays of all slots, independent of the type of their values.
pub(super) trait SlotArrays: Send {
    /// Number of slots, free or in use.
    fn slots(&self) -> u32;
    /// Size of one slot on all CPUs, in bytes.
    fn slot_bytes(&self) -> u64;
    /// Creates a chunk of slots and adds it to the probe's array of chunks. Returns the first slot.
    fn add_chunk(&mut self, more: &mut ArrayOfMaps<MapData>) -> Result<u32>;
    /// Uses the chunks that another process has added, for the first program and for the understudy.
    fn continue_with(&mut self, chunks: [Vec<MapData>; 2]) -> Result<()>;
    /// Adds chunks to the understudy's array of chunks until every slot has counters there.
    fn add_understudy_chunks(&mut self, series: &mut ArrayOfMaps<MapData>) -> Result<()>;
    /// Total size of all slots, over all CPUs and both programs, in bytes.
    fn bytes(&self) -> u64;
    /// The understudy's chunks.
    fn understudy_chunks(&self) -> Vec<BorrowedFd<'_>>;
    /// The chunks that were added, from index `first` on.
    fn chunks_from(&self, first: usize) -> Vec<BorrowedFd<'_>>;
    /// Reads the counters of a slot.
    fn read(&mut self, slot: u32) -> Result<SlotReading>;
}

/// Creates the arrays from the map of the first slots. With `sizes`, its values have size counters.
pub(super) fn from_map(map: Map, slots: u32, sizes: bool, cpus: PossibleCpus) -> Result<Box<dyn SlotArrays>> {
    Ok(if sizes {
        Box::new(Arrays::<CountersValue>::from_map(map, slots, cpus)?)
    } else {
        Box::new(Arrays::<SeriesValue>::from_map(map, slots, cpus)?)
    })
}

/// Size of one slot on one CPU, in bytes.
pub(super) const fn value_bytes(sizes: bool) -> usize {
    if sizes { size_of::<CountersValue>() } else { size_of::<SeriesValue>() }
}

struct Arrays<V: aya::Pod> {
    /// The slots that exist from the start.
    first: PerCpuArray<MapData, V>,
    first_slots: u32,
    /// Slots added later, in chunks.
    chunks: Vec<PerCpuArray<MapData, V>>,
    /// The understudy's counters of all slots, in chunks. Empty until they are added.
    understudy: Vec<PerCpuArray<MapData, V>>,
    cpus: PossibleCpus,
    buffer: SlotBuffer<V>,
}

impl<V: SlotValue> Arrays<V> {
    fn from_map(map: Map, first_slots: u32, cpus: PossibleCpus) -> Result<Self> {
        let first: PerCpuArray<_, _> = map.try_into()?;
        ensure!(first.len() == first_slots, "the probe has {} slots instead of {first_slots}", first.len());
        Ok(Self {
            first,
            first_slots,
            chunks: Vec::new(),
            understudy: Vec::new(),
            cpus,
            buffer: SlotBuffer::default(),
        })
    }

    /// The array that contains a slot, and the slot's index there.
    fn find(&self, slot: u32) -> Result<(&PerCpuArray<MapData, V>, u32)> {
        let Some(beyond) = slot.checked_sub(self.first_slots) else { return Ok((&self.first, slot)) };
        let chunk = self.chunks.get((beyond / CHUNK_SLOTS) as usize);
        Ok((chunk.context("the index refers to a slot that does not exist")?, beyond % CHUNK_SLOTS))
    }

    fn new_chunk() -> Result<PerCpuArray<MapData, V>> {
        PerCpuArray::create(CHUNK_SLOTS, 0).context("cannot create a chunk of slots")
    }
}

impl<V: SlotValue + Send> SlotArrays for Arrays<V> {
    fn slots(&self) -> u32 {
        self.first_slots + self.chunks.len() as u32 * CHUNK_SLOTS
    }

    fn slot_bytes(&self) -> u64 {
        (self.cpus.get() * size_of::<V>()) as u64
    }

    fn bytes(&self) -> u64 {
        let understudy_slots = self.understudy.len() as u32 * CHUNK_SLOTS;
        u64::from(self.slots() + understudy_slots) * self.slot_bytes()
    }

    fn add_chunk(&mut self, more: &mut ArrayOfMaps<MapData>) -> Result<u32> {
        let slots = self.slots();
        let chunk = Self::new_chunk()?;
        more.set(slots / CHUNK_SLOTS, chunk.map(), 0).context("cannot add a chunk of slots to the probe")?;
        self.chunks.push(chunk);
        Ok(slots)
    }

    fn continue_with(&mut self, chunks: [Vec<MapData>; 2]) -> Result<()> {
        let typed = |chunk| PerCpuArray::try_from(Map::from_map_data(chunk)?);
        let [first, understudy] =
            chunks.map(|chunks| chunks.into_iter().map(typed).collect::<Result<_, _>>());
        (self.chunks, self.understudy) = (first?, understudy?);
        Ok(())
    }

    fn add_understudy_chunks(&mut self, series: &mut ArrayOfMaps<MapData>) -> Result<()> {
        while (self.understudy.len() as u32) < self.slots() / CHUNK_SLOTS {
            let chunk = Self::new_chunk()?;
            series
                .set(self.understudy.len() as u32, chunk.map(), 0)
                .context("cannot add a chunk of slots to the understudy")?;
            self.understudy.push(chunk);
        }
        Ok(())
    }

    fn understudy_chunks(&self) -> Vec<BorrowedFd<'_>> {
        self.understudy.iter().map(|chunk| chunk.map().fd().as_fd()).collect()
    }

    fn chunks_from(&self, first: usize) -> Vec<BorrowedFd<'_>> {
        self.chunks.iter().skip(first).map(|chunk| chunk.map().fd().as_fd()).collect()
    }

    fn read(&mut self, slot: u32) -> Result<SlotReading> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let (map, index) = self.find(slot)?;
        let mut reading = buffer.read(map, index, self.cpus)?;
        if let Some(map) = self.understudy.get((slot / CHUNK_SLOTS) as usize) {
            let taken = buffer.read(map, slot % CHUNK_SLOTS, self.cpus)?;
            reading.sum.merge(&taken.sum);
            for (sum, count) in reading.completions.iter_mut().zip(taken.completions) {
                *sum = sum.wrapping_add(count);
            }
        }
        self.buffer = buffer;
        Ok(reading)
    }
}
