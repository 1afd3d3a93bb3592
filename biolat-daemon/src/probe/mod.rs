//! The probe from the daemon's side: load, attach, read. The only module that knows aya.

pub mod btf;
pub mod kernel;
mod maps;
mod messages;
pub mod object;
pub mod refusal;
mod sys;

use std::{
    collections::BTreeSet,
    error::Error,
    fs, io,
    os::fd::{AsFd, OwnedFd},
};

use anyhow::{Context as _, Result, anyhow, bail};
use aya::{
    Btf, Ebpf, EbpfLoader,
    programs::{BtfTracePoint, tp_btf::BtfTracePointLinkId},
};
use aya_log::EbpfLogger;
use biolat_common::{
    kernel::Layout,
    series::{Key, Series},
    slot::{CHUNK_SLOTS, SLOTS},
};

pub use maps::{Counters, Maps};
pub use sys::ProgramCounts;

use crate::{host::Host, rights};
use kernel::Kernel;
use messages::Messages;
use refusal::{Refusal, Release};

const PROGRAM: &str = "block_rq_complete";

/// The loaded and attached probe. Dropping it takes it out of the kernel.
pub struct Probe {
    object: Ebpf,
    /// The maps.
    pub maps: Maps,
    /// What the running kernel is like.
    pub kernel: Kernel,
    link: Option<BtfTracePointLinkId>,
    logger: EbpfLogger<Messages>,
    messages: Messages,
    statistics: Option<OwnedFd>,
}

impl Probe {
    /// Loads the probe, with room for so many series in whole chunks, and attaches it to a kernel of these types. With `statistics`
    /// the kernel counts its runs and their time, until the probe is dropped.
    pub fn attach(kernel: Kernel, types: Vec<u8>, host: &Host, slots: u32, statistics: bool) -> Result<Self> {
        let btf = parse(types)?;
        let terms = Terms::of(host)?;
        let statistics = statistics.then(enable_statistics).transpose()?;
        let messages = Messages::default();
        let Loaded { mut object, maps, logger } = terms.load(kernel.layout, &btf, slots, &messages)?;
        drop(btf);
        let link = program(&mut object)?.attach().context("cannot attach the probe");
        let link = link.map_err(|error| terms.explain(error))?;
        give_memory_back();
        Ok(Self { object, maps, kernel, link: Some(link), logger, messages, statistics })
    }

    /// Detaches the program; the maps stay. Nothing is counted from then on, and the audit tells.
    pub fn detach(&mut self) -> Result<()> {
        match self.link.take() {
            Some(link) => Ok(program(&mut self.object)?.detach(link)?),
            None => Ok(()),
        }
    }

    /// What the kernel counts of the program itself.
    pub fn program_counts(&mut self) -> Result<ProgramCounts> {
        program_counts(&mut self.object)
    }

    /// Whether the kernel counts the probe's runs for us.
    #[must_use]
    pub fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// Series that the probe found no room for since this was last asked.
    pub fn without_room(&mut self) -> BTreeSet<Key> {
        self.logger.flush();
        self.messages.take()
    }
}

/// Loads the probe as [`Probe::attach`] does, so that the kernel verifies it, and throws it away.
pub fn try_out(kernel: &Kernel, types: Vec<u8>, host: &Host, slots: u32) -> Result<ProgramCounts> {
    let btf = parse(types)?;
    let mut loaded = Terms::of(host)?.load(kernel.layout, &btf, slots, &Messages::default())?;
    program_counts(&mut loaded.object)
}

/// Slots as they are made: a whole number of chunks, one at least.
#[must_use]
pub fn in_whole_chunks(slots: u32) -> u32 {
    slots.next_multiple_of(CHUNK_SLOTS).clamp(CHUNK_SLOTS, SLOTS)
}

/// In the kernel, and attached to nothing.
struct Loaded {
    object: Ebpf,
    maps: Maps,
    logger: EbpfLogger<Messages>,
}

/// What loading depends on beside the probe: this process may do it.
struct Terms {
    release: Release,
    memlock: u64,
}

impl Terms {
    fn of(host: &Host) -> Result<Self> {
        let release = Release::of_this_kernel(&host.procfs).unwrap_or(Release(u32::MAX, 0));
        release.suffices().map_err(anyhow::Error::msg)?;
        if let Ok(Some(lacking)) = rights::lacking() {
            bail!(
                "loading the probe takes the capabilities CAP_BPF and CAP_PERFMON, and this process lacks {lacking}: \
                 run as root, or grant them: setcap cap_bpf,cap_perfmon+p <path of biolat-daemon>"
            );
        }
        let memlock = if release <= Release::LAST_WITH_MEMLOCK {
            refusal::raise_memlock()
        } else {
            libc::RLIM_INFINITY
        };
        Ok(Self { release, memlock })
    }

    fn load(&self, layout: Layout, btf: &Btf, slots: u32, messages: &Messages) -> Result<Loaded> {
        let mut slots = in_whole_chunks(slots);
        loop {
            match load(layout, btf, slots, messages.clone()) {
                Ok(loaded) => return Ok(loaded),
                // With less room some series may be lost, and counted as such; the collector tries to make more.
                Err(error) if slots > CHUNK_SLOTS && is_shortage(&error) => {
                    slots = in_whole_chunks(slots / 2)
                }
                Err(error) => return Err(self.explain(error)),
            }
        }
    }

    /// What failed, the kernel's reason, and what to do.
    fn explain(&self, error: anyhow::Error) -> anyhow::Error {
        let Some(reason) = io_error(error.as_ref()) else {
            return anyhow!("{}", one_line(&format!("{error:#}")));
        };
        let detail = match error.downcast_ref::<aya::programs::ProgramError>() {
            Some(aya::programs::ProgramError::LoadError { verifier_log, .. }) => {
                let text = verifier_log.to_string();
                log::debug!("verifier: {text}");
                let last =
                    text.lines().rev().find(|line| !line.trim().is_empty() && !line.starts_with("processed"));
                last.map(|line| format!(" (verifier: {})", line.trim())).unwrap_or_default()
            }
            _ => String::new(),
        };
        let what = format!("{error}: {reason}{detail}");
        Refusal { what, remedy: refusal::remedy(reason, self.release, self.memlock) }.into()
    }
}

/// What the kernel holds for each series.
pub fn slot_bytes() -> Result<u64> {
    Ok((maps::cpus()? * size_of::<Series>()) as u64)
}

/// The bytes of the running kernel's BTF.
pub fn kernel_types(host: &Host) -> Result<Vec<u8>> {
    let path = host.sysfs.join("kernel/btf/vmlinux");
    fs::read(&path).map_err(|error| {
        anyhow!(
            "cannot read the kernel's type information {}: {error}: it takes a kernel built with \
             CONFIG_DEBUG_INFO_BTF, and --sysfs set to where sysfs is mounted",
            path.display()
        )
    })
}

fn load(layout: Layout, btf: &Btf, slots: u32, messages: Messages) -> Result<Loaded> {
    let mut object = EbpfLoader::new()
        .btf(None)
        .map_max_entries("SERIES", slots)
        .load(&object::of_kernel(layout)?)
        .context("cannot load the probe")?;
    let logger =
        EbpfLogger::init_with_logger(&mut object, messages).context("cannot read the probe's messages")?;
    let maps = Maps::take(&mut object, slots)?;
    program(&mut object)?.load(PROGRAM, btf).context("cannot load the probe")?;
    Ok(Loaded { object, maps, logger })
}

fn parse(types: Vec<u8>) -> Result<Btf> {
    Btf::parse(&types, aya::Endianness::default())
        .map_err(|error| anyhow!("cannot use the kernel's BTF: {error}"))
}

fn program_counts(object: &mut Ebpf) -> Result<ProgramCounts> {
    let program = program(object)?;
    sys::program_counts(program.fd()?.as_fd().as_fd()).context("cannot read the probe's statistics")
}

fn program(object: &mut Ebpf) -> Result<&mut BtfTracePoint> {
    let Some(program) = object.program_mut(PROGRAM) else { bail!("the probe has no program {PROGRAM}") };
    Ok(program.try_into()?)
}

fn enable_statistics() -> Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).context(
        "cannot turn on the kernel's statistics of BPF programs: --probe-stats takes Linux 5.8 and CAP_SYS_ADMIN",
    )
}

/// Whether there was not enough memory, or not enough that may be locked.
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

/// Parsing the kernel's types took some tens of megabytes that are not needed again.
fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: no precondition.
    unsafe {
        libc::malloc_trim(0);
    }
}
