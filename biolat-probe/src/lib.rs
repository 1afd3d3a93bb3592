//! Loads, attaches and reads the probe. This is the only crate that uses aya.

#![deny(unsafe_code)]

pub mod abilities;
mod attached;
mod banks;
pub mod btf;
mod counter_array;
mod cpus;
mod events;
mod functions;
mod grace_periods;
mod host_btf;
mod inflight;
pub mod kernel;
mod load;
pub mod load_error;
mod map_set;
mod maps;
pub mod object;
mod options;
mod plain;
pub mod processes;
mod programs;
mod series_arrays;
mod series_maps;
mod settled;
mod slow;
mod state_map;
mod sys;
mod tag_waits;
mod takeover;
mod volumes;
mod workloads;

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result};
use aya_log::EbpfLogger;
use biolat_common::{
    inflight::Found,
    series::Key,
    slot::{BANKS, array_index},
};
use log::Log;

pub use attached::ProbeFds;
pub use banks::{Dimensions, Plan, Room};
pub use cpus::MAX_CPUS;
pub use grace_periods::GracePeriods;
pub use host_btf::kernel_btf;
pub use load::{in_whole_chunks, test_load};
pub use maps::{Maps, slot_bytes};
pub use options::{DEFAULT_WORKLOADS, Options, SlowNames, workloads_on};
pub use programs::Links;
pub use series_arrays::SimulatedSeries;
pub use series_maps::{SeriesMaps, SlotReading};
pub use slow::{NamesRecord, SlowIoRecord};
pub use state_map::StateMap;
pub use sys::ProgramCounts;
pub use volumes::{LACKS_VOLUMES, VolumeLosses, VolumeProbe, test_load_volumes, volume_bytes};
pub use workloads::{EpochCounts, SeenCgroup, WorkloadMaps, workload_bytes};

use biolat_system::{
    c_library,
    cpus::{CpuNodes, online_cpus},
    host::Host,
};

use attached::Attached;
use events::Events;
use functions::Functions;
use inflight::InflightResult;
use kernel::Kernel;
use load::{LoadEnv, Loaded};
use programs::Programs;
use slow::SlowRecords;
use takeover::Takeover;

/// The probe in the kernel. Dropping this removes the probe from the kernel, unless another process also has its file
/// descriptors.
pub struct Probe {
    programs: Programs,
    /// `None` unless it is attached.
    links: Option<Links>,
    /// Set only while the probe is loaded but not attached yet; an error if it cannot replace another probe.
    takeover: Option<Result<Takeover>>,
    /// The maps of the series and losses.
    pub maps: Maps,
    /// The running kernel.
    pub kernel: Kernel,
    /// The probe's options.
    pub options: Options,
    events: Events,
    slow: SlowRecords,
    functions: Functions,
    inflight: InflightResult,
    /// The maps of the workloads; `None` if I/Os are not counted by workload.
    pub workloads: Option<WorkloadMaps>,
    /// `None` for a probe that was taken over.
    logger: Option<EbpfLogger<&'static dyn Log>>,
    statistics: Option<OwnedFd>,
    dimensions: Dimensions,
}

impl Probe {
    /// Loads the probe with this many slots, rounded up to whole chunks, and attaches it. With `statistics`, the kernel counts
    /// the probe's runs and run time until the probe is dropped.
    pub fn attach(kernel: Kernel, host: &Host, slots: u32, options: &Options) -> Result<Self> {
        let mut probe = Self::load(kernel, host, slots, options, None)?;
        probe.attach_loaded(host)?;
        Ok(probe)
    }

    /// Loads the probe like [`attach`](Self::attach), without attaching it. If `map_fds` is given, file descriptors of the maps
    /// are appended to it, except those of chunks that are added later.
    pub fn load(
        kernel: Kernel,
        host: &Host,
        slots: u32,
        options: &Options,
        map_fds: Option<&mut Vec<OwnedFd>>,
    ) -> Result<Self> {
        let env = LoadEnv::of(host, &kernel)?;
        let statistics = options.statistics.then(enable_statistics).transpose()?;
        let Loaded {
            programs,
            takeover,
            maps,
            events,
            slow,
            mut functions,
            inflight,
            workloads,
            logger,
            dimensions,
        } = env.load(&kernel, slots, &Plan::of_host(&host.sysfs)?, options, map_fds)?;
        if options.named(&kernel) != SlowNames::Off {
            functions.refresh(&kernel, host)?;
        }
        // Loading has parsed and dropped all of the kernel's BTF: see `load`.
        c_library::trim_heap();
        Ok(Self {
            programs,
            links: None,
            takeover: Some(takeover),
            maps,
            kernel,
            options: *options,
            events,
            slow,
            functions,
            inflight,
            workloads,
            logger: Some(logger),
            statistics,
            dimensions,
        })
    }

    /// Attaches the loaded probe.
    pub fn attach_loaded(&mut self, host: &Host) -> Result<()> {
        self.takeover = None;
        let attached = self.programs.attach();
        self.links = Some(attached.or_else(|error| Err(LoadEnv::of(host, &self.kernel)?.explain(error)))?);
        Ok(())
    }

    /// Attaches the loaded probe instead of the one with these links, after all other processes have closed those links. Returns
    /// how long neither probe was attached, not counting that wait.
    pub fn replace(&mut self, last: Links) -> Result<Duration> {
        let takeover = self.takeover.take().context("the probe is attached")??;
        let (links, gap) = takeover.replace(last, &self.programs)?;
        self.links = Some(links);
        Ok(gap)
    }

    /// Takes over a probe that another process loaded for the same kernel, with these options and dimensions. `taken_epoch` is the
    /// latest workload epoch whose counts its previous owner took.
    pub fn take_over(
        kernel: Kernel,
        host: &Host,
        fds: ProbeFds,
        dimensions: Dimensions,
        options: &Options,
        taken_epoch: u64,
    ) -> Result<Self> {
        let Dimensions { slots, room } = dimensions;
        let statistics = options.statistics.then(enable_statistics).transpose()?;
        let Attached { programs, links, mut maps, banks, series, workloads: tables_of_banks, cpus } =
            Attached::open(fds, dimensions, &host.sysfs)?;
        let set = &mut maps;
        let (events, slow, inflight) =
            (Events::from_maps(set)?, SlowRecords::from_maps(set)?, InflightResult::from_maps(set)?);
        let functions = Functions::from_maps(set)?;
        let grace_periods = GracePeriods::start()?;
        let limit = workloads_on(&kernel, options.workloads);
        let tables = workloads::tables(limit, slots, room.cpus());
        let workloads = (limit > 0).then(|| -> Result<_> {
            let mut maps = WorkloadMaps::from_maps(set, tables, room.rows, grace_periods.clone())?;
            maps.continue_after(taken_epoch)?;
            maps.continue_with(tables_of_banks)?;
            Ok(maps)
        });
        let workloads = workloads.transpose()?;
        let mut maps =
            Maps::of_attached_probe(set, banks, slots, options.sizes, series, cpus, grace_periods)?;
        if links.as_ref().is_some_and(|links| links.understudy.is_some()) {
            maps.require_understudy_series();
        }
        Ok(Self {
            programs,
            links,
            takeover: None,
            maps,
            kernel,
            options: *options,
            events,
            slow,
            functions,
            inflight,
            workloads,
            logger: None,
            statistics,
            dimensions,
        })
    }

    /// Whether the understudy can be attached but is not.
    #[must_use]
    pub fn lacks_understudy(&self) -> bool {
        self.programs.understudy.is_some()
            && self.links.as_ref().is_some_and(|links| links.understudy.is_none())
    }

    /// Whether waits for a tag are counted.
    #[must_use]
    pub fn counts_tag_waits(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.tag_wait.is_some())
    }

    /// Adds the understudy's counters. They are not used until it is attached.
    pub fn add_understudy_counters(&mut self) -> Result<()> {
        if let Some(workloads) = &mut self.workloads {
            workloads.add_understudy_tables(self.maps.banks().all())?;
        }
        self.maps.add_understudy_series()
    }

    /// Gives counters to CPUs that have come online since the probe was loaded. The probe uses them once they are
    /// [activated](Self::activate_cpus). Returns whether there are any.
    pub fn add_cpus(&mut self, sysfs: &Path) -> Result<bool> {
        if let Some(online) = online_cpus(sysfs)
            && self.maps.banks().lacks(&online)
        {
            self.maps.add_cpus(&online, &CpuNodes::read(sysfs));
        }
        // An earlier call may have failed between these steps.
        let are_waiting = self.maps.banks().are_waiting();
        if are_waiting {
            self.maps.provide_banks()?;
            if let Some(workloads) = &mut self.workloads {
                workloads.provide_banks(self.maps.banks().all())?;
            }
        }
        Ok(are_waiting)
    }

    /// Lets the probe use the counters of added CPUs.
    pub fn activate_cpus(&mut self) -> Result<()> {
        self.maps.activate_cpus()
    }

    /// The arrays of counters that were added, each with a number that it keeps.
    #[must_use]
    pub fn added_arrays(&self) -> Vec<(u32, BorrowedFd<'_>)> {
        let no_tables = Default::default;
        let tables = self.workloads.as_ref().map_or_else(no_tables, WorkloadMaps::added_tables);
        let of_programs = self.maps.chunks().into_iter().zip(tables).enumerate();
        let numbered = of_programs.flat_map(|(program, (series, tables))| {
            let tables = tables.into_iter().map(|(bank, table)| (array_index(0, BANKS) + bank, table));
            let first = program as u32 * (array_index(0, BANKS) + BANKS);
            series.into_iter().chain(tables).map(move |(index, array)| (first + index, array))
        });
        numbered.collect()
    }

    /// Attaches the understudy, whose counters must have been added. Returns `false` if a run of the first program that began
    /// before marking has not ended yet; the caller must try again later.
    pub fn attach_understudy(&mut self) -> Result<bool> {
        /// Only a preempted run takes longer to end.
        const TIMEOUT: Duration = Duration::from_millis(100);
        let (Some(program), Some(links)) = (&self.programs.understudy, &mut self.links) else {
            return Ok(false);
        };
        if !self.maps.begin_marking(TIMEOUT)? {
            return Ok(false);
        }
        links.understudy = Some(sys::attach(program.as_fd()).context("cannot attach the understudy")?);
        Ok(true)
    }

    /// Loads the programs that measure volumes, without attaching them. `None` if the kernel lacks what they need.
    pub fn load_volume_probe(&self, host: &Host) -> Result<Option<VolumeProbe>> {
        VolumeProbe::load(&self.kernel, host, self.maps.cpus())
    }

    /// Whether the probe counts completions.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.links.is_some()
    }

    /// Takes the links: the probe is detached when they are dropped. The maps stay.
    pub fn take_links(&mut self) -> Option<Links> {
        self.links.take()
    }

    /// What the sizes of its maps depend on.
    #[must_use]
    pub fn dimensions(&self) -> Dimensions {
        self.dimensions
    }

    /// An id that no other probe has had since boot.
    pub fn id(&self) -> Result<u32> {
        Ok(sys::program_info(self.programs.complete.as_fd()).context("cannot read the id of the probe")?.id)
    }

    /// The file descriptors of its programs.
    #[must_use]
    pub fn program_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.programs.all().collect()
    }

    /// The file descriptors of its links.
    #[must_use]
    pub fn link_fds(&self) -> Vec<BorrowedFd<'_>> {
        self.links.iter().flat_map(Links::all).collect()
    }

    /// The kernel's counts for the probe's programs.
    pub fn program_counts(&self) -> Result<ProgramCounts> {
        self.programs.counts()
    }

    /// Whether the kernel counts the probe's runs and run time.
    #[must_use]
    pub fn has_statistics(&self) -> bool {
        self.statistics.is_some()
    }

    /// Writes the probe's messages to the log.
    pub fn flush_log(&mut self) {
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
    }

    /// Returns the records of slow and failed I/Os since the last call.
    pub fn slow_records(&mut self) -> Vec<SlowIoRecord> {
        self.slow.read()
    }

    /// Lets the probe know the functions of modules that have been loaded since the last call: they lead to names.
    pub fn refresh_functions(&mut self, host: &Host) -> Result<()> {
        if self.options.named(&self.kernel) == SlowNames::Off {
            return Ok(());
        }
        self.functions.refresh(&self.kernel, host)
    }

    /// Returns the number of slow and failed I/Os whose records were dropped because the ring buffer was full.
    pub fn slow_records_dropped(&mut self) -> Result<u64> {
        self.slow.dropped(self.maps.cpus())
    }

    /// Whether requests in flight can be surveyed.
    #[must_use]
    pub fn sees_inflight(&self) -> bool {
        self.programs.inflight.is_some()
    }

    /// Surveys the requests in flight on a hardware queue, identified by its open sysfs directory, starting at this slot.
    pub fn look_at_inflight(&self, hardware_queue: BorrowedFd<'_>, first: u32) -> Result<Found> {
        self.inflight.look(&self.programs, hardware_queue, first)
    }

    /// Whether a cgroup still exists.
    pub fn cgroup_exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool> {
        workloads::exists(&self.programs, workload, cgroup)
    }

    /// Returns the series that found no free slot since the last call.
    pub fn without_room(&mut self) -> BTreeSet<Key> {
        self.events.series_without_room()
    }
}

/// The number of possible CPUs listed by sysfs.
pub fn possible_cpus() -> Result<u64> {
    Ok(cpus::in_sysfs()? as u64)
}

fn enable_statistics() -> Result<OwnedFd> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).context(
        "cannot enable the kernel's statistics of BPF programs: --probe-stats requires CAP_SYS_ADMIN",
    )
}

/// Pins a map, program or link to a new file in a BPF file system.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    sys::pin(object, path)
}

/// Opens the object that is pinned to a file.
pub fn open_pinned(path: &Path) -> io::Result<OwnedFd> {
    sys::open_pinned(path)
}

/// Returns the identity of a probe: a hash of its code, relocated for the running kernel and these options, and of the sizes of
/// its maps.
pub fn identity(kernel: &Kernel, dimensions: Dimensions, options: &Options) -> Result<Vec<u8>> {
    let Dimensions { slots, room } = dimensions;
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    let options_on_kernel = options.for_kernel(kernel, slots, room)?;
    context.update(&object::adapted(kernel, options_on_kernel, room.by_node)?);
    let workloads = workloads_on(kernel, options.workloads);
    for number in [u64::from(slots), u64::from(workloads), possible_cpus()?, room.cpus()] {
        context.update(&number.to_le_bytes());
    }
    Ok(context.finish().as_ref().to_vec())
}
