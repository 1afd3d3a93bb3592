//! Loads the probe into the kernel, and explains failures to do so.

use std::{
    error::Error,
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use anyhow::{Context as _, Result, anyhow, bail};
use aya::{
    Btf, Ebpf, EbpfLoader,
    programs::{BtfTracePoint, Program, ProgramError, RawTracePoint},
};
use aya_log::EbpfLogger;
use biolat_common::{
    size::MAX_PARTS,
    slot::{CHUNK_SLOTS, SLOTS},
    tags::MAX_DEVICES,
};
use biolat_system::{host::Host, rights};
use log::Log;

use super::{
    abilities::Ability,
    banks::{Dimensions, Plan},
    cpus,
    events::Events,
    functions::Functions,
    grace_periods::GracePeriods,
    inflight::InflightResult,
    kernel::{Kernel, UnsupportedKernel},
    load_error::{self, LoadError},
    map_set::MapSet,
    maps::Maps,
    object,
    options::{Options, workloads_on},
    programs::{self, Programs},
    slow::SlowRecords,
    sys::ProgramCounts,
    takeover::{self, Takeover},
    workloads::WorkloadMaps,
};

/// The probe in the kernel, not attached yet.
pub(super) struct Loaded {
    pub(super) programs: Programs,
    /// An error if this probe cannot replace another one.
    pub(super) takeover: Result<Takeover>,
    pub(super) maps: Maps,
    pub(super) events: Events,
    pub(super) slow: SlowRecords,
    pub(super) functions: Functions,
    pub(super) inflight: InflightResult,
    /// `None` without workloads.
    pub(super) workloads: Option<WorkloadMaps>,
    pub(super) logger: EbpfLogger<&'static dyn Log>,
    pub(super) dimensions: Dimensions,
}

/// The environment for loading the probe. It exists only if this process is allowed to load programs.
pub(super) struct LoadEnv {
    /// The limit on locked memory, which maps count against. No limit on kernels that charge maps to the memory cgroup.
    memlock: u64,
}

impl LoadEnv {
    pub(super) fn of(host: &Host, kernel: &Kernel) -> Result<Self> {
        if let Some(ability) = kernel.abilities.on(host).missing_requirement() {
            return Err(UnsupportedKernel::Lacks(ability).into());
        }
        if let Ok(Some(lacking)) = rights::missing_capabilities() {
            let program = std::env::current_exe().unwrap_or_else(|_| "<path of the program>".into());
            bail!(
                "loading the probe requires CAP_BPF and CAP_PERFMON, and this process lacks {lacking}: \
                 run as root, or grant them: setcap cap_bpf,cap_perfmon+p {}",
                program.display()
            );
        }
        let is_limited = !kernel.has(Ability::CgroupChargedMaps);
        Ok(Self { memlock: if is_limited { load_error::raise_memlock() } else { libc::RLIM_INFINITY } })
    }

    /// Loads the probe. If memory is short, keeps halving the number of slots and trying again; the collector adds slots later.
    pub(super) fn load(
        &self,
        kernel: &Kernel,
        slots: u32,
        plan: &Plan,
        options: &Options,
        mut map_fds: Option<&mut Vec<OwnedFd>>,
    ) -> Result<Loaded> {
        let mut slots = in_whole_chunks(slots);
        loop {
            if let Some(fds) = &mut map_fds {
                fds.clear();
            }
            match load(kernel, slots, plan, options, map_fds.as_deref_mut()) {
                Ok(loaded) => return Ok(loaded),
                Err(error) if slots > CHUNK_SLOTS && is_shortage(&error) => {
                    slots = in_whole_chunks(slots / 2)
                }
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    /// Extends an error with the kernel's reason and the remedy.
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
                load_error::reason_in(&lines).map(|line| format!(" (verifier: {line})")).unwrap_or_default()
            }
            _ => String::new(),
        };
        let what = format!("{error}: {reason}{detail}");
        LoadError { what, remedy: load_error::remedy(reason, self.memlock) }.into()
    }
}

/// Number of lines from the end of the verifier's log that are logged at level `debug`. They contain the reason.
const VERIFIER_LINES: usize = 50;

/// Loads the probe like [`super::Probe::attach`] to have the kernel verify it, then unloads it without attaching it.
pub fn test_load(kernel: &Kernel, host: &Host, slots: u32, options: &Options) -> Result<ProgramCounts> {
    LoadEnv::of(host, kernel)?
        .load(kernel, slots, &Plan::of_host(&host.sysfs)?, options, None)?
        .programs
        .counts()
}

/// Rounds a number of slots up to whole chunks, at least one.
#[must_use]
pub fn in_whole_chunks(slots: u32) -> u32 {
    slots.next_multiple_of(CHUNK_SLOTS).clamp(CHUNK_SLOTS, SLOTS)
}

fn load(
    kernel: &Kernel,
    slots: u32,
    plan: &Plan,
    options: &Options,
    map_fds: Option<&mut Vec<OwnedFd>>,
) -> Result<Loaded> {
    let room = plan.room();
    let probe_options = options.for_kernel(kernel, slots, room)?;
    let tables = probe_options.tables();
    let workloads = workloads_on(kernel, options.workloads);
    let mut object = EbpfLoader::new()
        // Drops the kernel's BTF, which aya has already parsed: this probe has no relocations that need it.
        .btf(None)
        .map_max_entries("SERIES", slots)
        .map_max_entries("CPUS", cpus::possible_ids()?)
        .map_max_entries("SLOW", options.slow_ring_bytes(kernel))
        .map_max_entries("PARTS", if options.sizes { MAX_PARTS as u32 } else { 1 })
        .map_max_entries("MARKS", probe_options.mark_lines.max(1))
        .map_max_entries("CGROUPS", workloads.max(1))
        .map_max_entries("TAG_WAITS", if kernel.tag_wait.is_some() { MAX_DEVICES as u32 } else { 1 })
        .load(&object::adapted(kernel, probe_options, room.by_node)?)
        .context("cannot load the probe")?;
    let logger = EbpfLogger::init(&mut object).context("cannot read the probe's messages")?;
    let mut set = MapSet::Loaded(&mut object, map_fds);
    let events = Events::from_maps(&mut set)?;
    let grace_periods = GracePeriods::start()?;
    let maps = Maps::of_new_probe(&mut set, slots, plan.clone(), options.sizes, grace_periods.clone())?;
    let slow = SlowRecords::from_maps(&mut set)?;
    let functions = Functions::from_maps(&mut set)?;
    let inflight = InflightResult::from_maps(&mut set)?;
    let workload_maps = (workloads > 0).then(|| -> Result<_> {
        let mut workloads = WorkloadMaps::from_maps(&mut set, tables, room.rows, grace_periods)?;
        workloads.provide_banks(maps.banks().all())?;
        Ok(workloads)
    });
    let workload_maps = workload_maps.transpose()?;
    let btf = &kernel.tracepoints().context("cannot write BTF for the loader")?;
    let complete = load_attachable(&mut object, programs::COMPLETE, programs::COMPLETE, btf)
        .context("cannot load the probe")?;
    // The probe works without these programs.
    let optional = |what: &str, loaded: Result<OwnedFd>| {
        loaded.inspect_err(|error| log::warn!("{what}: {}", one_line(&format!("{error:#}")))).ok()
    };
    let understudy = kernel
        .has(Ability::RecursionGuard)
        .then(|| load_attachable(&mut object, programs::UNDERSTUDY, programs::COMPLETE, btf))
        .and_then(|loaded| {
            optional("completions for which the kernel refuses to run the probe are lost", loaded)
        });
    let requeue = kernel.requeue;
    let requeue = requeue.map(|_| load_attachable(&mut object, programs::REQUEUE, programs::REQUEUE, btf));
    let requeue = requeue.and_then(|loaded| optional(programs::REQUEUES_NOT_COUNTED, loaded));
    let tag_wait = kernel.tag_wait;
    let tag_wait =
        tag_wait.map(|_| load_attachable(&mut object, programs::TAG_WAIT, programs::TAG_WAIT, btf));
    let tag_wait = tag_wait.and_then(|loaded| optional(programs::TAG_WAITS_NOT_COUNTED, loaded));
    let inflight_program = kernel.can_walk.then(|| load_unattached(&mut object, programs::INFLIGHT));
    let inflight_program =
        inflight_program.and_then(|loaded| optional("the age of I/Os in flight is a lower bound", loaded));
    let cgroup_exists =
        workload_maps.is_some().then(|| load_unattached(&mut object, programs::CGROUP_EXISTS));
    let cgroup_exists = cgroup_exists.and_then(|loaded| optional("removed cgroups are not detected", loaded));
    let takeover = load_takeover(kernel, &mut object, btf);
    let programs =
        Programs { complete, understudy, requeue, tag_wait, inflight: inflight_program, cgroup_exists };
    Ok(Loaded {
        programs,
        takeover,
        maps,
        events,
        slow,
        functions,
        inflight,
        workloads: workload_maps,
        logger,
        dimensions: Dimensions { slots, room },
    })
}

fn load_takeover(kernel: &Kernel, object: &mut Ebpf, btf: &Btf) -> Result<Takeover> {
    let members = kernel.link_members.filter(|_| kernel.can_walk);
    let members =
        members.context("this kernel's BTF does not show where the references to a link are counted")?;
    let [one, other] =
        takeover::PLACEHOLDERS.map(|name| load_attachable(object, name, programs::COMPLETE, btf));
    let link_references = load_unattached(object, takeover::LINK_REFERENCES)?;
    Ok(Takeover { placeholders: [one?, other?], link_references, members })
}

/// Loads a program to be attached to a tracepoint.
pub(super) fn load_attachable(object: &mut Ebpf, name: &str, tracepoint: &str, btf: &Btf) -> Result<OwnedFd> {
    let program: &mut BtfTracePoint = loadable(object, name)?.try_into()?;
    program.load(tracepoint, btf)?;
    Ok(program.fd()?.as_fd().as_fd().try_clone_to_owned()?)
}

/// Loads a program that is only run by the daemon, never attached.
fn load_unattached(object: &mut Ebpf, name: &str) -> Result<OwnedFd> {
    let program: &mut RawTracePoint = loadable(object, name)?.try_into()?;
    program.load()?;
    Ok(program.fd()?.as_fd().as_fd().try_clone_to_owned()?)
}

fn loadable<'a>(object: &'a mut Ebpf, name: &str) -> Result<&'a mut Program> {
    object.program_mut(name).with_context(|| format!("the probe has no program {name}"))
}

/// Whether memory ran out, or the limit on locked memory was too low.
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
