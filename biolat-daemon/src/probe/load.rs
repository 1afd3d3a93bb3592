//! Loads the probe into the kernel, and explains why that failed.

use std::{error::Error, io, os::fd::AsFd};

use anyhow::{Context as _, Result, anyhow, bail};
use aya::{
    Btf, Ebpf, EbpfLoader,
    programs::{BtfTracePoint, ProgramError, RawTracePoint},
};
use aya_log::EbpfLogger;
use biolat_common::{
    size::MAX_PARTS,
    slot::{CHUNK_SLOTS, SLOTS},
};
use log::Log;

use super::{
    events::Events,
    inflight::{self, InflightResult},
    kernel::Kernel,
    load_error::{self, LoadError},
    maps::Maps,
    object,
    release::Release,
    slow::SlowRecords,
    sys::{self, ProgramCounts},
    workloads::{self, WorkloadMaps},
};
use crate::{host::Host, rights};

const PROGRAM: &str = "block_rq_complete";
const REQUEUE_PROGRAM: &str = "block_rq_requeue";

/// The probe in the kernel, not attached yet.
pub(super) struct Loaded {
    pub(super) object: Ebpf,
    pub(super) maps: Maps,
    pub(super) events: Events,
    pub(super) slow: SlowRecords,
    /// None if the kernel has not what it needs.
    pub(super) inflight: Option<InflightResult>,
    /// Whether requeues can be counted.
    pub(super) has_requeue: bool,
    /// None without workloads.
    pub(super) workloads: Option<WorkloadMaps>,
    pub(super) logger: EbpfLogger<&'static dyn Log>,
}

/// What loading depends on besides the probe. It exists only if this process may load programs.
pub(super) struct LoadEnv {
    release: Release,
    memlock: u64,
}

impl LoadEnv {
    pub(super) fn of(host: &Host) -> Result<Self> {
        let release = Release::of(host).unwrap_or(Release(u32::MAX, 0));
        release.supported().map_err(anyhow::Error::msg)?;
        if let Ok(Some(lacking)) = rights::missing_capabilities() {
            bail!(
                "loading the probe requires CAP_BPF and CAP_PERFMON, and this process lacks {lacking}: \
                 run as root, or grant them: setcap cap_bpf,cap_perfmon+p <path of biolat-daemon>"
            );
        }
        let memlock = if release <= Release::LAST_WITH_MEMLOCK {
            load_error::raise_memlock()
        } else {
            libc::RLIM_INFINITY
        };
        Ok(Self { release, memlock })
    }

    /// Loads the probe; if memory is short, with half the slots or fewer. The collector adds slots later.
    pub(super) fn load(&self, kernel: &Kernel, btf: &Btf, slots: u32, workloads: u32) -> Result<Loaded> {
        let mut slots = in_whole_chunks(slots);
        loop {
            match load(kernel, btf, slots, workloads) {
                Ok(loaded) => return Ok(loaded),
                Err(error) if slots > CHUNK_SLOTS && is_shortage(&error) => {
                    slots = in_whole_chunks(slots / 2)
                }
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    /// Adds the kernel's reason and the remedy to an error.
    pub(super) fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<LoadError>() {
            return error;
        }
        let Some(reason) = io_error(error.as_ref()) else {
            return anyhow!("{}", one_line(&format!("{error:#}")));
        };
        let detail = match error.downcast_ref::<ProgramError>() {
            Some(ProgramError::LoadError { verifier_log, .. }) => {
                let text = verifier_log.to_string();
                let lines: Vec<_> = text.lines().collect();
                for line in &lines[lines.len().saturating_sub(VERIFIER_LINES)..] {
                    log::debug!("verifier: {line}");
                }
                let last =
                    text.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("processed"));
                last.map(|line| format!(" (verifier: {})", line.trim())).unwrap_or_default()
            }
            _ => String::new(),
        };
        let what = format!("{error}: {reason}{detail}");
        LoadError { what, remedy: load_error::remedy(reason, self.release, self.memlock) }.into()
    }
}

/// The verifier's last lines, which have the reason, are logged at the level `debug`.
const VERIFIER_LINES: usize = 50;

/// Loads the probe like [`super::Probe::attach`], so that the kernel verifies it, and unloads it without attaching it.
pub fn test_load(
    kernel: &Kernel,
    btf: Vec<u8>,
    host: &Host,
    slots: u32,
    workloads: u32,
) -> Result<ProgramCounts> {
    let btf = parse_btf(btf)?;
    let mut loaded = LoadEnv::of(host)?.load(kernel, &btf, slots, workloads)?;
    program_counts(&mut loaded.object)
}

/// A number of slots rounded up to whole chunks, and at least one chunk.
#[must_use]
pub fn in_whole_chunks(slots: u32) -> u32 {
    slots.next_multiple_of(CHUNK_SLOTS).clamp(CHUNK_SLOTS, SLOTS)
}

pub(super) fn parse_btf(btf: Vec<u8>) -> Result<Btf> {
    Btf::parse(&btf, aya::Endianness::default())
        .map_err(|error| anyhow!("cannot parse the kernel's BTF: {error}"))
}

pub(super) fn program_counts(object: &mut Ebpf) -> Result<ProgramCounts> {
    let program = program(object)?;
    sys::program_counts(program.fd()?.as_fd().as_fd()).context("cannot read the probe's statistics")
}

pub(super) fn program(object: &mut Ebpf) -> Result<&mut BtfTracePoint> {
    tracepoint(object, PROGRAM)
}

pub(super) fn requeue_program(object: &mut Ebpf) -> Result<&mut BtfTracePoint> {
    tracepoint(object, REQUEUE_PROGRAM)
}

fn tracepoint<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut BtfTracePoint> {
    let Some(program) = object.program_mut(name) else { bail!("the probe has no program {name}") };
    Ok(program.try_into()?)
}

fn load(kernel: &Kernel, btf: &Btf, slots: u32, workloads: u32) -> Result<Loaded> {
    let workloads = if kernel.has_workloads { workloads } else { 0 };
    let tables = workloads::tables(workloads, slots, super::possible_cpus()?);
    let kernel = kernel.clone().with_tables(tables);
    let mut object = EbpfLoader::new()
        .btf(None)
        .map_max_entries("SERIES", slots)
        .map_max_entries("PARTS", if kernel.counts_sizes() { MAX_PARTS as u32 } else { 1 })
        .map_max_entries("WORKLOADS", 2 * tables.entries())
        .map_max_entries("CGROUPS", workloads.max(1))
        .load(&object::of_kernel(kernel.layout)?)
        .context("cannot load the probe")?;
    let logger = EbpfLogger::init(&mut object).context("cannot read the probe's messages")?;
    let events = Events::from_object(&mut object)?;
    let maps = Maps::from_object(&mut object, slots, kernel.counts_sizes())?;
    let slow = SlowRecords::from_object(&mut object)?;
    let result = InflightResult::from_object(&mut object)?;
    let workload_maps = (workloads > 0).then(|| WorkloadMaps::from_object(&mut object, tables, maps.cpus()));
    let workload_maps = workload_maps.transpose()?;
    program(&mut object)?.load(PROGRAM, btf).context("cannot load the probe")?;
    // The probe works without the other programs.
    let loaded = |what: &str, loaded: Result<()>| {
        loaded.map_err(|error| log::warn!("{what}: {}", one_line(&format!("{error:#}")))).is_ok()
    };
    let has_requeue =
        kernel.has_requeue && loaded("requeues are not counted", load_requeue_program(&mut object, btf));
    let sees_inflight = kernel.can_walk
        && loaded(
            "the age of I/Os in flight is a lower bound",
            load_unattached(&mut object, inflight::PROGRAM),
        );
    if workload_maps.is_some() {
        loaded(
            "whether a cgroup is gone is unknown",
            load_unattached(&mut object, workloads::EXISTS_PROGRAM),
        );
    }
    Ok(Loaded {
        object,
        maps,
        events,
        slow,
        inflight: sees_inflight.then_some(result),
        has_requeue,
        workloads: workload_maps,
        logger,
    })
}

/// Loads a program that the daemon runs. Nothing attaches it.
fn load_unattached(object: &mut Ebpf, name: &str) -> Result<()> {
    let Some(program) = object.program_mut(name) else { bail!("the probe has no program {name}") };
    let program: &mut RawTracePoint = program.try_into()?;
    Ok(program.load()?)
}

fn load_requeue_program(object: &mut Ebpf, btf: &Btf) -> Result<()> {
    Ok(requeue_program(object)?.load(REQUEUE_PROGRAM, btf)?)
}

/// Whether memory, or the memory that may be locked, was too small.
fn is_shortage(error: &anyhow::Error) -> bool {
    io_error(error.as_ref())
        .is_some_and(|error| matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EPERM)))
}

fn io_error<'a>(mut error: &'a (dyn Error + 'static)) -> Option<&'a io::Error> {
    loop {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        error = error.source()?;
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
