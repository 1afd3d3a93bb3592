//! Loads, attaches and reads the programs that count I/Os by process. They are independent of the probe.

#![allow(unsafe_code, reason = "aya::Pod is an unsafe trait, and reads of maps write to buffers")]

use std::os::fd::{AsFd as _, OwnedFd};

use anyhow::{Context as _, Result};
use aya::{
    Ebpf, EbpfLoader, include_bytes_aligned,
    maps::{Array, IterableMap as _, MapData, PerCpuArray, PerCpuHashMap, RingBuf},
};
use biolat_common::{
    constants::Constants,
    kernel::device_cell,
    lost::{Counts, REASONS},
    processes::{
        Control, IoCounts, IoRecord, NAME_BYTES, ProcessConstants, ProcessKey, ProcessName, RECORD_BYTES,
        RING_BYTES, Region, Usage, name_cell,
    },
    size::BAND_CELLS,
};
use biolat_system::host::Host;

use super::{
    cpus::{self, PossibleCpus},
    grace_periods::GracePeriods,
    kernel::{Kernel, processes::ProcessTracing},
    load::{LoadEnv, load_attachable},
    map_set::MapSet,
    object,
    plain::Plain,
    programs::{self, refused_runs},
    sys,
};

/// The compiled programs, which `cargo xtask ebpf` builds together with their manifest.
static OBJECT: &[u8] = include_bytes_aligned!("../object/processes.bpf.o");

/// Maximum memory of the counters on all CPUs, in bytes.
const USAGE_BYTES: usize = 64 << 20;

/// Limits on the number of keys: a process, a device and an op, in two epochs.
const MIN_KEYS: usize = 512;
const MAX_KEYS: usize = 8192;

/// The initial value of [`Control`] keeps it out of `.bss`.
const DATA: &str = ".data";

// SAFETY: `repr(C)` integers without padding.
unsafe impl aya::Pod for Plain<Region> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<ProcessKey> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<ProcessName> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<Usage> {}
// SAFETY: as above.
unsafe impl aya::Pod for Plain<IoCounts> {}

/// The I/O of a process in one epoch, by device and op, summed over the CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUsage {
    /// The key; its epoch is the one that has ended.
    pub key: ProcessKey,
    /// Bytes transferred.
    pub bytes: u64,
    /// Failed I/Os.
    pub errors: u64,
    /// Sum of the latencies.
    pub device_ns: u64,
    /// I/Os by device latency.
    pub cells: [u64; BAND_CELLS],
}

/// Runs that the kernel refused because the program was already running on that CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedRuns {
    /// I/Os whose process is unknown.
    pub starts: u64,
    /// I/Os that are not counted.
    pub completions: u64,
}

/// The programs in the kernel. Dropping this removes them.
pub struct ProcessProbe {
    starts: Vec<OwnedFd>,
    complete: OwnedFd,
    links: Vec<OwnedFd>,
    devices: Array<MapData, Plain<Region>>,
    names: Array<MapData, Plain<ProcessName>>,
    usage: PerCpuHashMap<MapData, Plain<ProcessKey>, Plain<Usage>>,
    lost: PerCpuArray<MapData, Counts>,
    ios: RingBuf<MapData>,
    io_counts: PerCpuArray<MapData, Plain<IoCounts>>,
    control_map: Array<MapData, u64>,
    control: Control,
    cpus: PossibleCpus,
    /// Handle to the thread that waits for runs of the programs.
    pub grace_periods: GracePeriods,
}

impl ProcessProbe {
    /// Loads the programs without attaching them. `entries` is the number of requests that can be in flight on all devices. With
    /// `sends_ios`, single I/Os are sent instead of counted.
    pub fn load(
        kernel: &Kernel,
        tracing: &ProcessTracing,
        host: &Host,
        entries: u32,
        sends_ios: bool,
    ) -> Result<Self> {
        let env = LoadEnv::of(host, kernel)?;
        let constants = ProcessConstants { sends_ios: u32::from(sends_ios), ..tracing.constants };
        load(kernel, tracing, constants, entries).map_err(|error| env.explain(error))
    }

    /// Attaches the loaded programs.
    pub fn attach(&mut self) -> Result<()> {
        for program in self.starts.iter().chain([&self.complete]) {
            self.links.push(sys::attach(program.as_fd()).context("cannot attach the programs")?);
        }
        Ok(())
    }

    /// Starts to count a device's I/O, or moves it to another region. Returns `false` if another device occupies its cell.
    pub fn set_region(&mut self, region: Region) -> Result<bool> {
        let cell = device_cell(region.device);
        let Plain(current) = self.devices.get(&cell, 0).context("cannot read the devices")?;
        if current.device != 0 && current.device != region.device {
            return Ok(false);
        }
        self.write_region(cell, Region::default())?;
        self.write_region(cell, region)?;
        Ok(true)
    }

    /// Stops counting a device's I/O.
    pub fn remove_region(&mut self, device: u64) -> Result<()> {
        let cell = device_cell(device);
        let Plain(current) = self.devices.get(&cell, 0).context("cannot read the devices")?;
        if current.device == device { self.write_region(cell, Region::default()) } else { Ok(()) }
    }

    fn write_region(&mut self, cell: u32, region: Region) -> Result<()> {
        self.devices.set(cell, Plain(region), 0).context("cannot change the devices")
    }

    /// Begins the next epoch, and returns the I/O of the one that has ended.
    pub fn next_epoch(&mut self) -> Result<Vec<ProcessUsage>> {
        let epoch = self.control.epoch;
        self.set_control(Control { epoch: epoch.wrapping_add(1), ..self.control })?;
        self.grace_periods.wait_to_the_end(self.grace_periods.request());
        let keys: Vec<_> =
            self.usage.keys().collect::<Result<_, _>>().context("cannot list the processes")?;
        let ended = keys.into_iter().filter(|Plain(key)| key.epoch == epoch);
        ended.map(|key| self.take_usage(key)).collect()
    }

    /// Captures the name of each process again at its next I/O. Must not be used while I/Os are counted.
    pub fn renew_names(&mut self) -> Result<()> {
        self.set_control(Control { epoch: self.control.epoch.wrapping_add(1), ..self.control })
    }

    /// Removes and returns the counters of an ended epoch, which no program changes any more.
    fn take_usage(&mut self, key: Plain<ProcessKey>) -> Result<ProcessUsage> {
        let mut values = Vec::<Plain<Usage>>::new();
        self.cpus.read_value(self.usage.map(), &key, &mut values).context("cannot read a process")?;
        self.usage.remove(&key).context("cannot remove a process")?;
        let mut sum = ProcessUsage { key: key.0, bytes: 0, errors: 0, device_ns: 0, cells: [0; BAND_CELLS] };
        for Plain(Usage { bytes, errors, device_ns, cells }) in values {
            sum.bytes += bytes;
            sum.errors += errors;
            sum.device_ns += device_ns;
            sum.cells.iter_mut().zip(cells).for_each(|(sum, count)| *sum += u64::from(count));
        }
        Ok(sum)
    }

    /// Returns the name that a process had at its first I/O in its latest epoch. `None` if another process has taken its place.
    pub fn name(&self, process: u32) -> Result<Option<String>> {
        let Plain(ProcessName { owner, comm }) =
            self.names.get(&name_cell(process), 0).context("cannot read a name")?;
        let comm: Vec<u8> = comm.iter().flat_map(|word| word.to_ne_bytes()).take(NAME_BYTES).collect();
        let end = comm.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
        let is_known = owner as u32 == process && end > 0;
        Ok(is_known.then(|| String::from_utf8_lossy(&comm[..end]).into_owned()))
    }

    /// Returns the single I/Os since the last call. Reads a limited number, so it returns even if the program keeps sending.
    pub fn ios(&mut self) -> Vec<IoRecord> {
        let mut records = Vec::new();
        for _ in 0..RING_BYTES / RECORD_BYTES {
            let Some(bytes) = self.ios.next() else { break };
            records.extend(IoRecord::from_bytes(&bytes));
        }
        records
    }

    /// Returns the numbers of single I/Os since the programs were attached.
    pub fn io_counts(&self) -> Result<IoCounts> {
        let mut values = Vec::new();
        self.cpus.read(&self.io_counts, 0, &mut values).context("cannot read the number of I/Os")?;
        Ok(values.iter().fold(IoCounts::default(), |sum, Plain(counts)| IoCounts {
            completed: sum.completed + counts.completed,
            dropped: sum.dropped + counts.dropped,
        }))
    }

    /// Sends one of this many I/Os from now on: a power of two.
    pub fn send_one_of(&mut self, one_of: u32) -> Result<()> {
        self.set_control(Control { one_of, ..self.control })
    }

    /// One of this many I/Os is sent.
    #[must_use]
    pub const fn one_of(&self) -> u32 {
        self.control.one_of
    }

    fn set_control(&mut self, control: Control) -> Result<()> {
        self.control_map.set(0, control.bits(), 0).context("cannot control the programs")?;
        self.control = control;
        Ok(())
    }

    /// Returns the completions that were neither counted nor sent, by [`biolat_common::lost::Reason`].
    pub fn lost(&self) -> Result<Counts> {
        let mut values = Vec::new();
        self.cpus.read(&self.lost, 0, &mut values).context("cannot read the lost completions")?;
        let mut sum = [0; REASONS];
        for counts in values {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(sum)
    }

    /// Returns the number of refused runs since the programs were attached.
    pub fn refused(&self) -> Result<RefusedRuns> {
        Ok(RefusedRuns {
            starts: self.starts.iter().map(refused_runs).sum::<Result<_>>()?,
            completions: refused_runs(&self.complete)?,
        })
    }
}

fn load(
    kernel: &Kernel,
    tracing: &ProcessTracing,
    processes: ProcessConstants,
    entries: u32,
) -> Result<ProcessProbe> {
    let per_key = cpus::in_sysfs()?.max(1) * size_of::<Usage>();
    let keys = (USAGE_BYTES / per_key).clamp(MIN_KEYS, MAX_KEYS);
    let constants = Constants { kernel: kernel.layout, processes, ..Constants::default() };
    let relocated = object::relocate(OBJECT, constants).context("the object does not match this program")?;
    let mut object = EbpfLoader::new()
        .btf(None)
        .map_max_entries("PROCESSES", entries)
        .map_max_entries("USAGE", keys as u32)
        .load(&relocated)
        .context("cannot load the programs")?;
    let btf = &tracing.tracepoints().context("cannot write BTF for the loader")?;
    let mut program =
        |name: &str| load_attachable(&mut object, name, name, btf).context("cannot load the programs");
    let starts = tracing.starts.iter().map(|name| program(name)).collect::<Result<_>>()?;
    let complete = program(programs::COMPLETE)?;
    from_maps(&mut object, starts, complete)
}

fn from_maps(object: &mut Ebpf, starts: Vec<OwnedFd>, complete: OwnedFd) -> Result<ProcessProbe> {
    let mut maps = MapSet::Loaded(object, None);
    let lost = maps.take("LOST")?.try_into()?;
    Ok(ProcessProbe {
        starts,
        complete,
        links: Vec::new(),
        devices: maps.take("DEVICES")?.try_into()?,
        names: maps.take("NAMES")?.try_into()?,
        usage: maps.take("USAGE")?.try_into()?,
        ios: maps.take("IOS")?.try_into()?,
        io_counts: maps.take("IO_COUNTS")?.try_into()?,
        control_map: maps.take(DATA)?.try_into()?,
        control: Control::FIRST,
        cpus: PossibleCpus::of_kernel(&lost)?,
        lost,
        grace_periods: GracePeriods::start()?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

    use super::OBJECT;

    /// The helpers that a program calls, with the number of calls. -1 is a subprogram.
    fn calls(program: &str) -> BTreeMap<i32, usize> {
        const CALL: u8 = 0x85;
        let object = object::File::parse(OBJECT).unwrap();
        let symbol = object.symbols().find(|symbol| symbol.name() == Ok(program)).unwrap();
        let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
        let code = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
        let mut calls = BTreeMap::new();
        for &[code, registers, _, _, number @ ..] in code.as_chunks::<8>().0 {
            if code == CALL {
                let is_helper = registers >> 4 == 0;
                let helper = if is_helper { i32::from_le_bytes(number) } else { -1 };
                *calls.entry(helper).or_default() += 1;
            }
        }
        calls
    }

    /// bpf_map_lookup_elem for the device, the entry and the name, which the kernel inlines, and bpf_get_current_pid_tgid. The
    /// subprogram captures a name.
    #[test]
    fn start_calls_only_lookups_and_the_current_process() {
        for program in ["block_io_start", "block_rq_insert", "block_rq_issue"] {
            assert_eq!(calls(program), BTreeMap::from([(1, 3), (14, 1), (-1, 1)]), "{program}");
        }
    }

    #[test]
    fn no_instruction_is_atomic() {
        const ATOMIC: [u8; 2] = [0xc3, 0xdb];
        let object = object::File::parse(OBJECT).unwrap();
        for section in object.sections().filter(|section| section.kind() == object::SectionKind::Text) {
            let code = section.data().unwrap();
            assert!(code.as_chunks::<8>().0.iter().all(|code| !ATOMIC.contains(&code[0])));
        }
    }
}
