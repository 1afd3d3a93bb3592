//! The probe from the daemon's side: load, attach, read. The only module that uses aya.

pub mod btf;
mod cpus;
mod events;
mod inflight;
pub mod kernel;
mod load;
pub mod load_error;
mod maps;
pub mod object;
pub mod release;
mod series_maps;
mod slot_arrays;
mod slow;
mod sys;
mod workloads;

use std::{
    collections::BTreeSet,
    fs,
    os::fd::{BorrowedFd, OwnedFd},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use aya::{Ebpf, programs::tp_btf::BtfTracePointLinkId};
use aya_log::EbpfLogger;
use biolat_common::{inflight::Found, series::Key, slow::SlowRecord};
use log::Log;

pub use load::{in_whole_chunks, test_load};
pub use maps::Maps;
pub use series_maps::{SeriesMaps, SlotReading};
pub use slot_arrays::{CountersValue, SlotBuffer};
pub use sys::ProgramCounts;
pub use workloads::{EpochCounts, SeenCgroup, WorkloadMaps, workload_bytes};

use crate::{c_library, host::Host};
use events::Events;
use inflight::InflightResult;
use kernel::Kernel;
use load::{LoadEnv, Loaded, parse_btf, program};
use slow::SlowRecords;

/// What the probe does besides counting latencies.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the kernel measures the probe's run time.
    pub statistics: bool,
    /// I/Os that take so long are recorded, and those that fail; none: no I/O is.
    pub slow: Option<Duration>,
    /// Whether requests are counted by size.
    pub sizes: bool,
    /// How many workloads are told apart; 0: none.
    pub workloads: u32,
}

/// How many workloads are told apart by default.
pub const DEFAULT_WORKLOADS: u32 = 256;

impl Default for Options {
    fn default() -> Self {
        Self { statistics: false, slow: None, sizes: true, workloads: DEFAULT_WORKLOADS }
    }
}

/// The loaded and attached probe. Dropping it removes it from the kernel.
pub struct Probe {
    object: Ebpf,
    /// The maps.
    pub maps: Maps,
    /// The running kernel.
    pub kernel: Kernel,
    link: Option<BtfTracePointLinkId>,
    requeue_link: Option<BtfTracePointLinkId>,
    events: Events,
    slow: SlowRecords,
    inflight: Option<InflightResult>,
    /// None without workloads.
    pub workloads: Option<WorkloadMaps>,
    logger: EbpfLogger<&'static dyn Log>,
    statistics: Option<OwnedFd>,
}

impl Probe {
    /// Loads the probe with this many slots, rounded up to whole chunks, and attaches it. `btf` describes the running
    /// kernel. With `statistics` the kernel counts the probe's runs and run time until the probe is dropped.
    pub fn attach(
        kernel: Kernel,
        btf: Vec<u8>,
        host: &Host,
        slots: u32,
        workloads: u32,
        statistics: bool,
    ) -> Result<Self> {
        let btf = parse_btf(btf)?;
        let env = LoadEnv::of(host)?;
        let statistics = statistics.then(enable_statistics).transpose()?;
        let Loaded { mut object, maps, events, slow, inflight, has_requeue, workloads, logger } =
            env.load(&kernel, &btf, slots, workloads)?;
        drop(btf);
        let link = program(&mut object)?.attach().context("cannot attach the probe");
        let link = link.map_err(|error| env.explain(error))?;
        let requeue_link =
            has_requeue.then(|| load::requeue_program(&mut object)?.attach().map_err(Into::into));
        let requeue_link = requeue_link.transpose().unwrap_or_else(|error: anyhow::Error| {
            log::warn!("requeues are not counted: {error:#}");
            None
        });
        // Parsing BTF took some tens of megabytes.
        c_library::trim_heap();
        Ok(Self {
            object,
            maps,
            kernel,
            link: Some(link),
            requeue_link,
            events,
            slow,
            inflight,
            workloads,
            logger,
            statistics,
        })
    }

    /// Detaches the programs; the maps stay. From then on the audit reports missed completions.
    pub fn detach(&mut self) -> Result<()> {
        if let Some(link) = self.requeue_link.take() {
            load::requeue_program(&mut self.object)?.detach(link)?;
        }
        match self.link.take() {
            Some(link) => Ok(program(&mut self.object)?.detach(link)?),
            None => Ok(()),
        }
    }

    /// The kernel's counts of the program itself.
    pub fn program_counts(&mut self) -> Result<ProgramCounts> {
        load::program_counts(&mut self.object)
    }

    /// Whether the kernel counts the probe's runs and run time.
    #[must_use]
    pub fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// Writes the probe's messages to the log.
    pub fn flush_log(&mut self) {
        self.logger.flush();
    }

    /// I/Os that were slow or failed, since the last call.
    pub fn slow_records(&mut self) -> Vec<SlowRecord> {
        self.slow.read()
    }

    /// I/Os that were slow or failed and found the ring buffer full, since the probe was attached.
    pub fn slow_records_dropped(&mut self) -> Result<u64> {
        self.slow.dropped(self.maps.cpus())
    }

    /// Whether requests in flight can be looked at.
    #[must_use]
    pub fn sees_inflight(&self) -> bool {
        self.inflight.is_some()
    }

    /// Looks at the requests in flight of a hardware queue, by its open directory in sysfs, from this slot on.
    pub fn look_at_inflight(&self, hardware_queue: BorrowedFd<'_>, first: u32) -> Result<Found> {
        let result = self.inflight.as_ref().context("this kernel does not show requests in flight")?;
        result.look(&self.object, hardware_queue, first)
    }

    /// Whether a cgroup still exists.
    pub fn cgroup_exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool> {
        workloads::exists(&self.object, workload, cgroup)
    }

    /// Series for which no slot was free, since the last call.
    pub fn without_room(&mut self) -> BTreeSet<Key> {
        self.events.series_without_room()
    }
}

/// The possible CPUs that sysfs lists.
pub fn possible_cpus() -> Result<u64> {
    Ok(cpus::in_sysfs()? as u64)
}

/// Bytes of the counters of one series in the kernel, with or without those by size, before any map exists: by the CPUs
/// that sysfs lists.
pub fn slot_bytes(sizes: bool) -> Result<u64> {
    Ok(possible_cpus()? * slot_arrays::value_bytes(sizes) as u64)
}

/// The bytes of the running kernel's BTF.
pub fn kernel_btf(host: &Host) -> Result<Vec<u8>> {
    let path = host.btf();
    fs::read(&path).map_err(|error| {
        anyhow!(
            "cannot read the kernel's BTF {}: {error}: biolat requires a kernel built with CONFIG_DEBUG_INFO_BTF, \
             and --sysfs set to where sysfs is mounted",
            path.display()
        )
    })
}

fn enable_statistics() -> Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).context(
        "cannot enable the kernel's statistics of BPF programs: --probe-stats requires CAP_SYS_ADMIN",
    )
}
