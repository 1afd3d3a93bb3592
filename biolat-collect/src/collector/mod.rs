//! The collector. Each collection reads the kernel's disk statistics and then the probe's counters, audits one against the other,
//! and makes a [`Snapshot`]. The collector runs in its own thread and shares only its snapshots and the scrape count.

mod audit;
mod devices;
mod handle;
mod incomplete;
mod inflight;
mod keep;
mod losses;
mod origin;
mod reference;
mod refusals;
mod replace;
mod series_store;
mod slots;
pub(crate) mod slow_log;
mod spread;
mod state;
mod sysfs_thread;
mod tag_waits;
mod thread;
pub mod totals;
mod volumes;
mod workload_totals;
mod workloads;

use std::{
    collections::BTreeMap,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_common::{lost::TAG_WAITS, series::Key};
use biolat_model::snapshot::{Health, ProbeRuns, Snapshot, WorkloadView};
use biolat_probe::{Probe, ProgramCounts, SeriesMaps as _, WorkloadMaps, abilities::Ability};
use biolat_system::{
    cpus::{CpuNodes, online_cpus},
    host::Host,
    process,
    rights::{self, Role},
};

use crate::device::diskstats::DiskStats;
use devices::Devices;
use inflight::Surveys;
use keep::{Keep, KeptParts};
use losses::Losses;
use refusals::Refusals;
use replace::EarlierProbes;
use series_store::SeriesStore;
use slots::{SlotSupply, create_foreseen};
use slow_log::SlowIoLog;
use sysfs_thread::SysfsThread;
use thread::CollectionStats;
use volumes::Volumes;
use workloads::Workloads;

pub use handle::{Handle, Settings};
pub use keep::Kept;
pub use slots::slots_at_start;
pub use volumes::MeasureVolumes;

/// The collector, as the parts that each collection goes through in turn.
pub struct Collector {
    host: Host,
    /// Time between collections.
    interval: Duration,
    probe: Probe,
    started: SystemTime,
    devices: Devices,
    sysfs: SysfsThread,
    cpu_nodes: CpuNodes,
    /// Whether some online CPUs have no counters.
    lacks_cpus: bool,
    store: SeriesStore,
    slots: SlotSupply,
    workloads: Workloads,
    volumes: Volumes,
    surveys: Surveys,
    slow: SlowIoLog,
    refusals: Refusals,
    /// Counts of the probes that the current one has replaced.
    earlier: EarlierProbes,
    /// Requeues for which the kernel did not run the probe.
    requeue_misses: u64,
    /// Waits for a tag that are not counted.
    lost_tag_waits: u64,
    /// Time when the counters were last read.
    read: Option<Instant>,
    stats: CollectionStats,
    /// `None` if nothing is kept for the next daemon.
    keep: Option<Keep>,
}

impl Collector {
    pub fn probe_mut(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// Drops the privileges of the calling thread, which is the collector's, and of the threads that read sysfs and wait for runs
    /// of the probe.
    fn drop_privileges(&mut self, filter: bool) -> Result<()> {
        let reader = self.sysfs.read(move || rights::drop_privileges(Role::ReadingSysfs, filter));
        reader.context("the thread that reads sysfs does not answer")??;
        let waiting = move || rights::drop_privileges(Role::WaitingForRuns, filter);
        self.probe.maps.grace_periods.in_thread(waiting)??;
        let keeping = self.keep.as_ref().map(Keep::rights);
        rights::drop_privileges(Role::Collecting { keeping }, filter)
    }

    /// Runs one collection.
    pub fn collect(&mut self) -> Result<Snapshot> {
        let begun = self.begin_collection()?;
        self.finish_collection(&begun)
    }

    /// Runs the first part of a collection, up to the point where it has to wait for runs of the probe. Returns the disk
    /// statistics.
    fn begin_collection(&mut self) -> Result<BTreeMap<u64, DiskStats>> {
        if self.devices.is_scan_due() {
            self.rescan()?;
        }
        self.provide_cpus();
        // Read before the counters, so the counters include every I/O in the log.
        self.read_slow_records();
        let diskstats = self.devices.read_diskstats(&mut self.sysfs);
        self.switch_workloads()?;
        Ok(diskstats)
    }

    /// Runs the rest of a collection. Waits for the runs of the probe if they have not ended yet.
    fn finish_collection(&mut self, diskstats: &BTreeMap<u64, DiskStats>) -> Result<Snapshot> {
        // Read before the series, so the series include all I/Os of the workloads.
        self.workloads.read(&mut self.probe, &mut self.sysfs, &self.host)?;
        let mut index = self.probe.maps.index()?;
        self.probe.flush_log();
        let no_room = self.slots.add_no_room(self.probe.without_room());
        if index.iter().map(|(key, _)| key).chain(no_room).any(|key| self.devices.is_unresolved(*key)) {
            self.rescan()?;
            // The scan may have ended series, and their slots must no longer be read as theirs.
            index = self.probe.maps.index()?;
        }
        self.read_series(&index)?;
        self.read_tag_waits()?;
        self.volumes.read(&self.host, &mut self.sysfs);
        self.slow.complete(
            &mut self.probe,
            &self.host,
            &self.devices,
            &self.workloads.store,
            &self.earlier,
        )?;
        let program = self.probe.program_counts()?;
        self.attach_understudy(program.recursion_misses);
        let program = self.earlier.with_program(program);
        let lost = self.losses(&program)?;
        self.devices.audit(diskstats, &self.store, &self.probe.kernel, lost.accounted);
        self.surveys.look(&self.devices, diskstats, &self.probe, &self.host.sysfs, self.interval);
        self.devices.expire_unresolved(&mut self.store, &mut self.probe)?;
        self.end_quarantine()?;
        self.provide_series();
        self.slots.log_no_room(&self.devices, &self.probe.kernel);
        let mut snapshot = self.snapshot(lost, program);
        self.volumes.add_to(&mut snapshot, self.probe.kernel.statuses_since_6_10);
        Ok(snapshot)
    }

    /// Scans the devices now. If that blocks, the known devices stay unchanged, and the next scan applies the late result.
    fn rescan(&mut self) -> Result<()> {
        self.devices.scan(&mut self.sysfs, &mut self.store, &mut self.probe)?;
        if let Err(error) = self.probe.refresh_functions(&self.host) {
            log::warn!("cannot name files and processes of I/Os through new modules: {error:#}");
        }
        if let Some(found) = self.devices.take_volumes() {
            self.volumes.reconcile(&self.host, found);
        }
        self.end_quarantine()?;
        self.provide_series();
        Ok(())
    }

    /// Adds slots, and creates the series of the shown devices.
    fn provide_series(&mut self) {
        self.slots.provide(&mut self.store, &mut self.probe.maps, &self.devices);
        if let Err(error) = self.release_slots() {
            log::debug!("cannot release slots, trying again with the next collection: {error:#}");
        }
        create_foreseen(&mut self.store, &mut self.probe.maps, &self.devices);
    }

    /// Gives counters to CPUs that have come online, once they are kept for the next daemon. If that fails, the completions on these
    /// CPUs are counted as lost, and the next collection tries again.
    fn provide_cpus(&mut self) {
        match self.try_provide_cpus() {
            Ok(()) => self.lacks_cpus = false,
            Err(error) if !std::mem::replace(&mut self.lacks_cpus, true) => log::error!(
                "cannot create counters for CPUs that came online: {error:#}; their completions are counted as lost (no_room)"
            ),
            Err(_) => {}
        }
    }

    fn try_provide_cpus(&mut self) -> Result<()> {
        if self.probe.add_cpus(&self.host.sysfs)? {
            if let Some(keep) = &mut self.keep {
                keep.store_arrays(&self.probe)?;
            }
            self.probe.activate_cpus()?;
            self.cpu_nodes = CpuNodes::read(&self.host.sysfs);
        }
        Ok(())
    }

    /// Makes slots whose quarantine is over available again.
    fn end_quarantine(&mut self) -> Result<()> {
        self.store.end_quarantine(&mut self.probe.maps)?;
        self.release_slots()
    }

    /// Releases slots that are new or out of quarantine, once their baselines are kept for the next daemon.
    fn release_slots(&mut self) -> Result<()> {
        if self.store.has_uncommitted() {
            self.commit();
        }
        self.store.release_committed(&mut self.probe.maps)
    }

    /// Switches the workload tables, for [`Workloads::read`].
    fn switch_workloads(&mut self) -> Result<()> {
        if self.probe.workloads.as_ref().is_some_and(|maps| !maps.is_taken()) {
            // A failed collection or the previous daemon left a table. Before it is reused, the kept state must record that it
            // was taken.
            self.workloads.take(&mut self.probe)?;
            self.commit();
        }
        self.workloads.switch(&mut self.probe)
    }

    /// Waits, up to the timeout, until everything counted before the switch can be taken. Returns whether it can.
    fn workloads_are_at_rest(&self, timeout: Duration) -> bool {
        self.probe.workloads.as_ref().is_none_or(|maps| maps.wait_for_rest(timeout))
    }

    /// Whether the probe records individual I/Os.
    fn records_slow_ios(&self) -> bool {
        self.probe.options.slow.is_some()
    }

    /// Reads the records of slow I/Os. Returns whether there were any.
    fn read_slow_records(&mut self) -> bool {
        self.slow.read(&mut self.probe, &self.host, &self.devices, &self.workloads.store)
    }

    fn read_series(&mut self, index: &[(Key, u32)]) -> Result<()> {
        let growth = self.store.read(&mut self.probe.maps, index, &mut self.workloads.reference)?;
        self.workloads.reference.clear();
        self.workloads.store.retain_series(|key| self.store.contains(key));
        for (id, growth) in growth.into_iter().filter(|(_, growth)| growth.total > 0) {
            self.workloads.store.add_without_room(growth.without_workload);
            if let Some(known) = self.devices.get_mut(id) {
                known.has_dispatch_times = growth.split > 0;
                if growth.bytes > 0 && !self.probe.kernel.has(Ability::SubmissionTimestamps) {
                    known.has_submission_times = growth.admitted > 0;
                }
            }
        }
        let elapsed = self.read.replace(Instant::now()).map(|read| read.elapsed()).unwrap_or_default();
        for (id, known) in self.devices.iter_mut() {
            known.spread.set(self.store.completions(id), elapsed);
        }
        Ok(())
    }

    fn read_tag_waits(&mut self) -> Result<()> {
        for (id, counted) in self.probe.maps.tag_waits()? {
            if let Some(known) = self.devices.get_mut(id) {
                known.tag_waits.set(counted);
            }
        }
        Ok(())
    }

    fn losses(&mut self, program: &ProgramCounts) -> Result<Losses> {
        let counts = self.earlier.with_losses(self.probe.maps.losses()?);
        self.requeue_misses = program.requeue_misses;
        self.lost_tag_waits = program.tag_wait_misses + counts[TAG_WAITS];
        let unresolved = self.devices.unresolved_completions();
        Ok(Losses::new(&counts, program.recursion_misses, &mut self.refusals, unresolved))
    }

    /// Writes the state, if it is kept.
    fn commit(&mut self) {
        let mut keep = self.keep.take();
        keep::commit(&mut keep, self.kept_parts());
        self.keep = keep;
    }

    fn kept_parts(&mut self) -> KeptParts<'_> {
        KeptParts {
            started: self.started,
            probe: &self.probe,
            devices: &self.devices,
            store: &mut self.store,
            workloads: &mut self.workloads,
            slow: &mut self.slow,
            refusals: &self.refusals,
            earlier: self.earlier,
            stats: &self.stats,
        }
    }

    fn snapshot(&self, lost: Losses, program: ProgramCounts) -> Snapshot {
        let Self { devices, store, workloads, .. } = self;
        let inflight = |id| self.surveys.latest(id);
        let runs = ProbeRuns { count: program.runs, time: Duration::from_nanos(program.run_time_ns) };
        Snapshot {
            taken: SystemTime::now(),
            started: self.started,
            devices: devices.views(store, &workloads.store, &self.probe, &self.cpu_nodes, inflight),
            host: self.host.name(),
            interval: self.interval,
            workloads: self.probe.workloads.as_ref().map(|maps| self.workload_views(maps.slots())),
            lost: lost.by_reason,
            slow: self.slow.ios(),
            slow_dropped: self.slow.dropped(),
            health: self.health(),
            probe: self.probe.has_statistics().then_some(runs),
            process: process::read(&self.host.procfs),
            online_cpus: online_cpus(&self.host.sysfs).map(|cpus| cpus.len()),
            ..Snapshot::default()
        }
    }

    /// Returns the workloads. Only the first `slots` slots are counted by workload.
    fn workload_views(&self, slots: u32) -> Vec<WorkloadView> {
        let uncounted = self.store.in_slots_from(slots).map(|(key, totals)| (key, totals.of_all_workloads()));
        let shown = |id| self.devices.get(id).filter(|known| known.shown);
        self.workloads.store.views(
            &uncounted.collect::<Vec<_>>(),
            self.started,
            |id| shown(id).map(|known| known.device.name.as_str()),
            |op| self.probe.kernel.op_name(op),
        )
    }

    /// Returns statistics of the collector.
    #[must_use]
    pub fn health(&self) -> Health {
        let slots = self.probe.maps.slots();
        let maps = self.probe.workloads.as_ref();
        Health {
            durations: self.stats.histogram(),
            last_success: self.stats.last_success,
            wait: self.stats.wait,
            failures: self.stats.failures,
            overruns: self.stats.overruns,
            lost_requeues: self.requeue_misses,
            lost_tag_waits: self.probe.counts_tag_waits().then_some(self.lost_tag_waits),
            slots: u64::from(slots),
            map_bytes: self.probe.maps.bytes()
                + maps.map_or(0, WorkloadMaps::bytes)
                + self.volumes.map_bytes(),
            workload_room: maps.map(|maps| self.workloads.store.room(maps.room())),
        }
    }
}
