//! Loads, attaches and reads the programs that measure volumes. They are independent of the probe.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf, EbpfLoader, include_bytes_aligned,
    maps::{Array, ArrayOfMaps, IterableMap as _, MapData, PerCpuArray},
};
use biolat_common::{
    constants::Constants,
    kernel::device_cell,
    volumes::{ENTRIES, GROUPS, MAX_VOLUMES, SET_STARTS, SETS, Start, Tally, Volume, VolumeCounters},
};
use biolat_system::host::Host;

use super::{
    abilities::Ability,
    cpus::PossibleCpus,
    kernel::{
        Kernel,
        volumes::{COMPLETE, QUEUE, VolumeTracing},
    },
    load::{LoadEnv, load_attachable},
    map_set::MapSet,
    maps::array_of_maps,
    object,
    plain::Plain,
    programs::refused_runs,
    sys,
};

/// The compiled programs, which `cargo xtask ebpf` builds together with their manifest.
static OBJECT: &[u8] = include_bytes_aligned!("../object/volumes.bpf.o");

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for Plain<Volume> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<VolumeCounters> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<Tally> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<[Start; SET_STARTS]> {}

type Counters = PerCpuArray<MapData, Plain<VolumeCounters>>;

/// I/Os of volumes that are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VolumeLosses {
    /// Starts that had to make room for others.
    pub evicted: u64,
    /// Runs that the kernel refused because the program was already running on that CPU, and that no understudy took: an upper
    /// bound, because some were for bios of other devices.
    pub refused: u64,
}

/// Names of the understudies.
const UNDERSTUDIES: [&str; 2] = ["other_bio_queue", "other_bio_complete"];

/// The programs in the kernel. Dropping this removes them.
pub struct VolumeProbe {
    /// At the start and at the end of a bio.
    programs: [OwnedFd; 2],
    /// `None` where the kernel refuses no runs.
    understudies: Option<[OwnedFd; 2]>,
    /// Runs that had been refused when the understudies were attached. `None` as long as they are not needed.
    refused_before: Option<u64>,
    /// Empty unless they are attached.
    links: Vec<OwnedFd>,
    volumes: Array<MapData, Plain<Volume>>,
    starts: Array<MapData, Plain<[Start; SET_STARTS]>>,
    all_counters: ArrayOfMaps<MapData>,
    tally: PerCpuArray<MapData, Plain<Tally>>,
    /// Starts that were removed when the understudies were attached.
    removed: u64,
    losses: VolumeLosses,
    /// The counters of the measured volumes, by device id, with their index.
    counters: BTreeMap<u64, (u32, Counters)>,
    /// The next index to use, if it is free. An index is not used again at once, because a run may be using it.
    next: u32,
    cpus: PossibleCpus,
}

impl VolumeProbe {
    /// Loads the programs without attaching them. `None` if the kernel lacks what they need.
    pub(super) fn load(kernel: &Kernel, host: &Host, cpus: PossibleCpus) -> Result<Option<Self>> {
        Programs::load(kernel, host)?.map(|programs| with_maps(programs, cpus)).transpose()
    }

    /// Starts to measure a device. Fails, among other things, if there is no room for it: another volume has its cell, or there are
    /// [`MAX_VOLUMES`] others.
    pub fn measure(&mut self, device: u64) -> Result<()> {
        self.begin(device).inspect_err(|_| {
            // What was begun is undone as far as possible.
            let _ = self.remove(device);
        })
    }

    fn begin(&mut self, device: u64) -> Result<()> {
        self.attach_all()?;
        let cell = device_cell(device);
        let Plain(current) = self.volumes.get(&cell, 0).context("cannot read the volumes")?;
        let index = self.free_index().filter(|_| current.device == 0);
        let index = index.context("there is no room for more volumes")?;
        let counters: Counters =
            PerCpuArray::create(ENTRIES, 0).context("cannot create counters for a volume")?;
        self.all_counters.set(index, counters.map(), 0).context("cannot add counters for a volume")?;
        self.write(cell, Volume { device, counters: index, padding: 0 })?;
        self.counters.insert(device, (index, counters));
        self.next = (index + 1) % MAX_VOLUMES;
        Ok(())
    }

    /// Attaches the programs that are not attached yet. An understudy comes after its program, so that it runs after it.
    fn attach_all(&mut self) -> Result<()> {
        let understudies = self.understudies.iter().flatten().filter(|_| self.refused_before.is_some());
        for program in self.programs.iter().chain(understudies).skip(self.links.len()) {
            let link = sys::attach(program.as_fd()).context("cannot attach the programs for volumes")?;
            self.links.push(link);
        }
        Ok(())
    }

    /// Attaches the understudies if the kernel has refused a run. Returns whether it attached them.
    pub fn attach_understudies(&mut self) -> Result<bool> {
        let is_needed =
            self.understudies.is_some() && self.refused_before.is_none() && self.losses.refused > 0;
        if !is_needed || self.links.is_empty() {
            return Ok(false);
        }
        self.refused_before = Some(self.losses.refused);
        self.attach_all().inspect_err(|_| self.refused_before = None)?;
        // A bio whose end was refused has left its start behind. An understudy would mistake it for the start of the next bio at that
        // address.
        for set in 0..SETS {
            let Plain(starts) = self.starts.get(&set, 0).context("cannot read the starts")?;
            let left = starts.iter().filter(|start| !start.is_free()).count();
            if left > 0 {
                self.starts
                    .set(set, Plain([Start::default(); SET_STARTS]), 0)
                    .context("cannot remove starts")?;
                self.removed += left as u64;
            }
        }
        Ok(true)
    }

    fn free_index(&self) -> Option<u32> {
        let is_free = |index: &u32| self.counters.values().all(|(used, _)| used != index);
        (self.next..MAX_VOLUMES).chain(0..self.next).find(is_free)
    }

    /// Size of the counters of the measured volumes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.counters.len() as u64 * volume_bytes(self.cpus.get() as u64)
    }

    /// Stops measuring a device. Without any, the programs are detached.
    pub fn remove(&mut self, device: u64) -> Result<()> {
        if self.counters.remove(&device).is_some() {
            self.write(device_cell(device), Volume::default())?;
        }
        if self.counters.is_empty() {
            self.links.clear();
        }
        Ok(())
    }

    fn write(&mut self, cell: u32, volume: Volume) -> Result<()> {
        self.volumes.set(cell, Plain(volume), 0).context("cannot change the volumes")
    }

    /// Returns the counters of a measured device and a [group](biolat_common::volumes::group), summed over the CPUs and both roles.
    /// They wrap.
    pub fn read(&self, device: u64, group: u32) -> Result<VolumeCounters> {
        let (_, counters) = self.counters.get(&device).context("the volume is not measured")?;
        let mut sum = VolumeCounters::ZERO;
        let mut values = Vec::new();
        for entry in (group..ENTRIES).step_by(GROUPS as usize) {
            self.cpus.read(counters, entry, &mut values).context("cannot read a volume")?;
            values.iter().for_each(|Plain(value)| add(&mut sum, value));
        }
        Ok(sum)
    }

    /// Returns the losses since the programs were loaded.
    pub fn losses(&mut self) -> Result<VolumeLosses> {
        // Read first: an understudy takes a run only after it was refused.
        let refused: u64 = self.programs.iter().map(refused_runs).sum::<Result<_>>()?;
        let mut sum = Tally::default();
        let mut values = Vec::new();
        for role in 0..2 {
            self.cpus.read(&self.tally, role, &mut values).context("cannot read the lost I/Os of volumes")?;
            for Plain(Tally { evicted, taken }) in &values {
                sum.evicted += evicted;
                sum.taken += taken;
            }
        }
        let mut lost = refused.saturating_sub(sum.taken);
        // A bio is lost only if both programs were refused.
        if let (Some(before), Some(understudies)) = (self.refused_before, &self.understudies) {
            lost = lost.min(before + understudies.iter().map(refused_runs).sum::<Result<u64>>()?);
        }
        let refused = lost.max(self.losses.refused);
        self.losses = VolumeLosses { evicted: sum.evicted + self.removed, refused };
        Ok(self.losses)
    }
}

/// Kernel memory for the counters of one volume, in bytes.
#[must_use]
pub fn volume_bytes(cpus: u64) -> u64 {
    cpus * u64::from(ENTRIES) * size_of::<VolumeCounters>() as u64
}

/// Why volumes are not measured on a kernel for which no programs are loaded.
pub const LACKS_VOLUMES: &str =
    "this kernel's BTF lacks block_bio_queue, block_bio_complete or a member that they need";

/// Loads the programs for volumes to have the kernel verify them, then unloads them. Returns whether the kernel has what they need.
pub fn test_load_volumes(kernel: &Kernel, host: &Host) -> Result<bool> {
    Ok(Programs::load(kernel, host)?.is_some())
}

fn add(sum: &mut VolumeCounters, value: &VolumeCounters) {
    sum.bytes = sum.bytes.wrapping_add(value.bytes);
    sum.total_ns = sum.total_ns.wrapping_add(value.total_ns);
    let add = |(sum, count): (&mut u32, &u32)| *sum = sum.wrapping_add(*count);
    sum.errors.iter_mut().zip(&value.errors).for_each(add);
    sum.cells.iter_mut().zip(&value.cells).for_each(add);
}

/// The programs and their maps.
struct Programs {
    object: Ebpf,
    programs: [OwnedFd; 2],
    understudies: Option<[OwnedFd; 2]>,
}

impl Programs {
    /// `None` if the kernel lacks what they need.
    fn load(kernel: &Kernel, host: &Host) -> Result<Option<Self>> {
        let Some(tracing) = &kernel.volumes else { return Ok(None) };
        let env = LoadEnv::of(host, kernel)?;
        Self::relocate_and_load(kernel, tracing).map(Some).map_err(|error| env.explain(error))
    }

    fn relocate_and_load(kernel: &Kernel, tracing: &VolumeTracing) -> Result<Self> {
        let constants =
            Constants { kernel: kernel.layout, volumes: tracing.constants, ..Constants::default() };
        let relocated =
            object::relocate(OBJECT, constants).context("the object does not match this program")?;
        let mut object =
            EbpfLoader::new().btf(None).load(&relocated).context("cannot load the programs for volumes")?;
        let btf = &tracing.tracepoints().context("cannot write BTF for the loader")?;
        let mut program = |name: &str, tracepoint: &str| {
            load_attachable(&mut object, name, tracepoint, btf)
                .context("cannot load the programs for volumes")
        };
        let programs = [program(QUEUE, QUEUE)?, program(COMPLETE, COMPLETE)?];
        let [queue, complete] = UNDERSTUDIES;
        let understudies = match kernel.has(Ability::RecursionGuard) {
            true => Some([program(queue, QUEUE)?, program(complete, COMPLETE)?]),
            false => None,
        };
        Ok(Self { object, programs, understudies })
    }
}

fn with_maps(programs: Programs, cpus: PossibleCpus) -> Result<VolumeProbe> {
    let Programs { mut object, programs, understudies } = programs;
    let mut maps = MapSet::Loaded(&mut object, None);
    Ok(VolumeProbe {
        programs,
        understudies,
        refused_before: None,
        links: Vec::new(),
        volumes: maps.take("VOLUMES")?.try_into()?,
        all_counters: array_of_maps(maps.take("COUNTERS")?)?,
        starts: maps.take("STARTS")?.try_into()?,
        tally: maps.take("TALLY")?.try_into()?,
        removed: 0,
        losses: VolumeLosses::default(),
        counters: BTreeMap::new(),
        next: 0,
        cpus,
    })
}
