//! The probe's maps, typed. `biolat_common::slot` says what they mean.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use anyhow::{Context as _, Result};
use aya::{
    Ebpf,
    maps::{Array, ArrayOfMaps, HashMap, IterableMap as _, Map, MapData, MapError, PerCpuArray, Queue},
};
use biolat_common::{
    lost::{Counts, REASONS},
    series::{Key, Series},
    slot::{CHUNK_SLOTS, Cell, SLOTS},
};

use super::{
    cpus::{self, PossibleCpus},
    series_maps::SeriesMaps,
    sys,
};

/// Insert only a key that is not there.
const BPF_NOEXIST: u64 = 1;

/// A series as the value of a map.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct SeriesValue(Series);

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for SeriesValue {}

impl From<Series> for SeriesValue {
    fn from(series: Series) -> Self {
        Self(series)
    }
}

/// A buffer for one CPU's counters after another, reused for each series.
#[derive(Default)]
pub struct SeriesBuffer(Vec<SeriesValue>);

impl SeriesBuffer {
    /// An entry of a per-CPU array, summed over the CPUs.
    fn read(
        &mut self,
        map: &PerCpuArray<MapData, SeriesValue>,
        index: u32,
        cpus: PossibleCpus,
    ) -> Result<Series> {
        cpus.read(map, index, &mut self.0).context("cannot read a series")?;
        Ok(self.sum())
    }

    /// The same for a plain array with the counters of so many CPUs in one value. The bench of the collector simulates
    /// machines with it that have more CPUs than its own.
    pub fn read_plain<const CPUS: usize>(
        &mut self,
        map: &Array<MapData, [SeriesValue; CPUS]>,
        index: u32,
    ) -> Result<Series> {
        self.0.resize(CPUS, Series::ZERO.into());
        // SAFETY: there is room for the array's value, whose size aya has checked; the map is not per CPU.
        unsafe { sys::read_entry(map.map(), index, self.0.as_mut_ptr()) }.context("cannot read a series")?;
        Ok(self.sum())
    }

    fn sum(&self) -> Series {
        let mut sum = Series::ZERO;
        for SeriesValue(cpu) in &self.0 {
            sum.merge(cpu);
        }
        sum
    }
}

/// The maps.
pub struct Maps {
    table: Array<MapData, u64>,
    index: HashMap<MapData, u64, u32>,
    /// Buffers for the keys and values of the whole index.
    entries: (Vec<u64>, Vec<u32>),
    free: Queue<MapData, u32>,
    lost: PerCpuArray<MapData, Counts>,
    /// The slots that exist from the start, and their number.
    series: PerCpuArray<MapData, SeriesValue>,
    preallocated: u32,
    /// The slots added later, in chunks.
    more: ArrayOfMaps<MapData>,
    chunks: Vec<PerCpuArray<MapData, SeriesValue>>,
    cpus: PossibleCpus,
    buffer: SeriesBuffer,
    losses: Vec<Counts>,
}

impl Maps {
    /// Takes the maps out of an object that was loaded with this many slots, and pushes the slots to the free queue.
    pub(super) fn from_object(object: &mut Ebpf, preallocated: u32) -> Result<Self> {
        let mut take =
            |name: &str| object.take_map(name).with_context(|| format!("the probe has no map {name}"));
        let lost = take("LOST")?.try_into()?;
        let cpus = PossibleCpus::of_kernel(&lost)?;
        cpus.compare(cpus::in_sysfs()?)?;
        let mut maps = Self {
            table: take("TABLE")?.try_into()?,
            index: take("INDEX")?.try_into()?,
            entries: (vec![0; SLOTS as usize], vec![0; SLOTS as usize]),
            free: take("FREE")?.try_into()?,
            lost,
            series: take("SERIES")?.try_into()?,
            preallocated,
            more: array_of_maps(take("MORE")?)?,
            chunks: Vec::new(),
            cpus,
            buffer: SeriesBuffer::default(),
            losses: Vec::new(),
        };
        for slot in 0..preallocated {
            maps.push_free(slot)?;
        }
        Ok(maps)
    }

    /// Bytes of the counters of one slot in the kernel.
    #[must_use]
    pub fn slot_bytes(&self) -> u64 {
        (self.cpus.get() * size_of::<Series>()) as u64
    }

    /// How many CPUs each counter has a copy for.
    pub(super) fn cpus(&self) -> PossibleCpus {
        self.cpus
    }

    /// All slots, free or in use.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.preallocated + self.chunks.len() as u32 * CHUNK_SLOTS
    }

    /// Every series and its slot.
    pub fn index(&mut self) -> Result<Vec<(Key, u32)>> {
        let (keys, slots) = &mut self.entries;
        let read = sys::read_hash(&self.index, keys, slots).context("cannot read the index of series")?;
        Ok(keys[..read].iter().map(|&key| Key::from_bits(key)).zip(slots[..read].iter().copied()).collect())
    }

    /// Lost completions by reason, summed over the CPUs.
    pub fn losses(&mut self) -> Result<Counts> {
        self.cpus.read(&self.lost, 0, &mut self.losses).context("cannot read the losses")?;
        let mut sum = [0_u64; REASONS];
        for cpu in &self.losses {
            for (sum, count) in sum.iter_mut().zip(cpu) {
                *sum += count;
            }
        }
        Ok(sum)
    }
}

impl SeriesMaps for Maps {
    fn add_chunk(&mut self) -> Result<Option<u32>> {
        let slots = self.slots();
        if slots == SLOTS {
            return Ok(None);
        }
        let chunk = PerCpuArray::create(CHUNK_SLOTS, 0).context("cannot create a map for more series")?;
        self.more
            .set(slots / CHUNK_SLOTS, chunk.map(), 0)
            .context("cannot add a map for more series to the probe")?;
        self.chunks.push(chunk);
        Ok(Some(slots))
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

    fn read(&mut self, slot: u32) -> Result<Series> {
        let (map, index) = match slot.checked_sub(self.preallocated) {
            None => (&self.series, slot),
            Some(beyond) => {
                let chunk = self.chunks.get((beyond / CHUNK_SLOTS) as usize);
                (chunk.context("the index has a slot that does not exist")?, beyond % CHUNK_SLOTS)
            }
        };
        self.buffer.read(map, index, self.cpus)
    }
}

/// aya's conversion is generic over the type of the inner maps, and needs the target named.
fn array_of_maps(map: Map) -> Result<ArrayOfMaps<MapData>> {
    Ok(ArrayOfMaps::try_from(map)?)
}
