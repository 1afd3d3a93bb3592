//! The collector. Each collection reads the kernel's disk statistics, then the probe's counters, audits one by the other, and
//! makes a [`Snapshot`] of them. It runs in its own thread and shares nothing but its snapshots and
//! the number of scrapes.

mod audit;
mod handle;
mod incomplete;
mod inflight;
mod keep;
mod lifetimes;
mod origin;
mod reference;
mod refusals;
mod replace;
mod series_store;
mod slots;
mod slow_log;
mod snapshots;
mod spread;
mod state;
mod sysfs_thread;
mod thread;
pub mod totals;
mod workload_totals;
mod workloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_common::series::Key;
use biolat_model::{
    device::{Device, Group, Selection},
    losses::{CountedBy, LOSS_REASONS, LossReason},
    snapshot::Snapshot,
};
use biolat_probe::{Probe, SeriesMaps as _, kernel::Kernel};
use biolat_system::{
    host::Host,
    rights::{self, Role},
};

use crate::{
    cpus::CpuNodes,
    device::{self, IdKind, diskstats::DiskStats, paths, sysfs},
    scrapes::Scrapes,
};
use audit::Audit;
use inflight::{InflightState, SurveyTurns};
use keep::Keep;
use reference::Reference;
use refusals::Refusals;
use replace::EarlierProbes;
use series_store::SeriesStore;
use slow_log::{GoneDevices, SlowIoLog};
use spread::Spread;
use state::record::DeviceRecord;
use sysfs_thread::SysfsThread;
use workloads::WorkloadStore;

pub use handle::{Handle, Settings};
pub use keep::Kept;
pub use slots::slots_at_start;

/// Without uevents, devices are scanned after this.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);

/// The collector's state.
pub struct Collector {
    host: Host,
    selection: Selection,
    probe: Probe,
    started: SystemTime,
    /// When the devices were scanned; `None` if a scan is due.
    scanned: Option<Instant>,
    devices: BTreeMap<u64, KnownDevice>,
    sysfs: SysfsThread,
    scan_result: Arc<Mutex<Option<ScanResult>>>,
    /// When the latest scan began whose result is known here.
    known_scan_began: Instant,
    store: SeriesStore,
    /// Devices that the probe has seen and no scan has found, and since when.
    unresolved_devices: BTreeMap<u64, Instant>,
    /// Completions of devices that were gone before a scan found them.
    unresolved_completions: u64,
    /// Whether the last attempt to add slots failed.
    grow_failed: bool,
    /// Series that the probe has reported to have no slot, to be logged.
    no_room: BTreeSet<Key>,
    logged_no_room: BTreeSet<Key>,
    /// Time between two collections.
    interval: Duration,
    survey_turns: SurveyTurns,
    slow: SlowIoLog,
    workloads: WorkloadStore,
    reference: Reference,
    scrapes: Scrapes,
    /// When the names of pods were read.
    pod_names_read: Option<Instant>,
    cpu_nodes: CpuNodes,
    /// When the counters were read last.
    read: Option<Instant>,
    gone: GoneDevices,
    stats: thread::CollectionStats,
    /// What was counted by probes that this one has replaced.
    earlier: EarlierProbes,
    /// Requeues that the kernel did not show to the probe.
    requeue_misses: u64,
    refusals: Refusals,
    /// None if nothing is kept for the next daemon.
    keep: Option<Keep>,
    /// Devices that the last daemon knew, until they are found here.
    kept_devices: Vec<DeviceRecord>,
}

/// What a scan has found, and when it began.
type ScanResult = (Instant, Result<Vec<Device>>);

/// A device that the last scan has found.
struct KnownDevice {
    device: Device,
    shown: bool,
    since: SystemTime,
    audit: Option<Audit>,
    /// Whether the device has been quiet during a collection, so that the audit's baseline is exact.
    was_quiet: bool,
    /// Whether the kernel records when requests are dispatched, judging by the latest ones.
    has_dispatch_times: bool,
    /// Whether the kernel records when I/O is submitted, judging by the latest ones.
    has_submission_times: bool,
    inflight: InflightState,
    spread: Spread,
}

/// Completions in no histogram.
struct Losses {
    by_reason: Vec<(&'static str, u64)>,
    /// Those that diskstats accounts, over all devices.
    accounted: u64,
}

fn scan(host: &Host, ids: IdKind, known: &BTreeMap<u64, Device>) -> Result<Vec<Device>> {
    let mut found = device::scan(&host.sysfs, ids, |id| known.get(&id)).with_context(|| {
        format!("cannot list the block devices in {}", host.sysfs.join("block").display())
    })?;
    device::read_stacks(host, &mut found).context("cannot read what is stacked on block devices")?;
    Ok(found)
}

fn id_kind(kernel: &Kernel) -> IdKind {
    if kernel.layout.id_is_sequence != 0 { IdKind::Diskseq } else { IdKind::Directory }
}

impl Collector {
    pub fn probe_mut(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// Drops the privileges of the calling thread, which collects, and of those that read sysfs and
    /// wait for runs of the probe.
    fn drop_privileges(&mut self, filter: bool) -> Result<()> {
        let reader = self.sysfs.read(move || rights::drop_privileges(Role::ReadingSysfs, filter));
        reader.context("the thread that reads sysfs does not answer")??;
        let waiting = move || rights::drop_privileges(Role::WaitingForRuns, filter);
        self.probe.maps.grace_periods.in_thread(waiting)??;
        let keeping = self.keep.as_ref().map(Keep::rights);
        rights::drop_privileges(Role::Collecting { keeping }, filter)
    }

    /// Scans the devices now. If that blocks, they stay as they are; a scan that ends late counts next time.
    fn rescan(&mut self) -> Result<()> {
        self.take_scan()?;
        let (host, ids) = (self.host.clone(), id_kind(&self.probe.kernel));
        let known = self.devices.iter().map(|(&id, known)| (id, known.device.clone())).collect();
        let scanned = Arc::clone(&self.scan_result);
        self.sysfs.read(move || {
            let began = Instant::now();
            let found = scan(&host, ids, &known);
            *scanned.lock().unwrap_or_else(PoisonError::into_inner) = Some((began, found));
        });
        self.take_scan()?;
        self.scanned = Some(Instant::now());
        self.end_quarantine()?;
        self.provide_slots();
        self.create_foreseen_series();
        Ok(())
    }

    /// Takes over what a scan has found, if one has ended.
    fn take_scan(&mut self) -> Result<()> {
        let found = self.scan_result.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((began, found)) = found else { return Ok(()) };
        // After an error, the next collection scans again.
        self.scanned = None;
        self.reconcile(found?)?;
        self.known_scan_began = began;
        Ok(())
    }

    /// One collection.
    pub fn collect(&mut self) -> Result<Snapshot> {
        let begun = self.begin_collection()?;
        self.finish_collection(&begun)
    }

    /// The first part of a collection, up to the point where it waits for runs of the probe that are in progress. Returns the disk
    /// statistics.
    fn begin_collection(&mut self) -> Result<BTreeMap<u64, DiskStats>> {
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= SCAN_INTERVAL) {
            self.rescan()?;
        }
        // Before the counters, so that these have each I/O of the log.
        self.read_slow_records();
        let diskstats = self.read_diskstats();
        self.switch_workloads()?;
        Ok(diskstats)
    }

    /// The rest of a collection. It waits for those runs if they have not ended.
    fn finish_collection(&mut self, diskstats: &BTreeMap<u64, DiskStats>) -> Result<Snapshot> {
        // Before the series, which then have all I/Os of the workloads.
        self.read_workloads()?;
        let mut index = self.probe.maps.index()?;
        self.probe.flush_log();
        self.no_room.extend(self.probe.without_room());
        if index.iter().map(|(key, _)| key).chain(&self.no_room).any(|key| self.is_unresolved(*key)) {
            self.rescan()?;
            // The scan may have ended series, whose slots must not be read as theirs any more.
            index = self.probe.maps.index()?;
        }
        self.read_series(&index)?;
        self.complete_slow_log()?;
        let program = self.probe.program_counts()?;
        self.attach_understudy(program.recursion_misses);
        let program = self.earlier.with_program(program);
        self.requeue_misses = program.requeue_misses;
        let lost = self.losses(program.recursion_misses)?;
        self.audit_devices(diskstats, &lost);
        self.look_for_inflight(diskstats);
        self.expire_unresolved_devices()?;
        self.end_quarantine()?;
        self.provide_slots();
        self.create_foreseen_series();
        self.log_no_room();
        Ok(self.snapshot(lost, program))
    }

    /// Of the devices that are shown, to be read before the counters: see [`audit`]. A device that has just gone has none;
    /// the next scan removes it.
    fn read_diskstats(&mut self) -> BTreeMap<u64, DiskStats> {
        self.read_attributes();
        let mut diskstats = BTreeMap::new();
        for (&id, known) in self.devices.iter().filter(|(_, known)| known.shown) {
            match DiskStats::read(&self.host.sysfs, &known.device) {
                Ok(read) => {
                    diskstats.insert(id, read);
                }
                Err(_) => self.scanned = None,
            }
        }
        diskstats
    }

    /// What may change of a device that is shown without a uevent. If reading it blocks, it stays as it was.
    fn read_attributes(&mut self) {
        let shown = self.devices.iter().filter(|(_, known)| known.shown);
        let devices: Vec<_> =
            shown.map(|(&id, known)| (id, known.device.name.clone(), known.device.path.is_some())).collect();
        let root = self.host.sysfs.clone();
        let read = move || {
            let attributes = |(id, name, is_path): (u64, String, bool)| {
                let state = is_path.then(|| paths::state(&root, &name));
                (id, sysfs::iostats_enabled(&root, &name).ok(), state)
            };
            devices.into_iter().map(attributes).collect::<Vec<_>>()
        };
        for (id, iostats, state) in self.sysfs.read(read).unwrap_or_default() {
            let Some(KnownDevice { device, .. }) = self.devices.get_mut(&id) else { continue };
            device.iostats = iostats.unwrap_or(device.iostats);
            if let (Some(path), Some(state)) = (&mut device.path, state) {
                path.state = state;
            }
        }
    }

    /// Returns how many I/Os have completed since the last reading.
    fn read_series(&mut self, index: &[(Key, u32)]) -> Result<u64> {
        let growth = self.store.read(&mut self.probe.maps, index, &mut self.reference)?;
        self.reference.clear();
        self.workloads.retain_series(|key| self.store.contains(key));
        let completions = growth.values().map(|growth| growth.total).sum();
        for (id, growth) in growth.into_iter().filter(|(_, growth)| growth.total > 0) {
            self.workloads.add_without_room(growth.without_workload);
            if let Some(known) = self.devices.get_mut(&id) {
                known.has_dispatch_times = growth.split > 0;
                if growth.bytes > 0 && !self.probe.kernel.records_submission() {
                    known.has_submission_times = growth.admitted > 0;
                }
            }
        }
        let elapsed = self.read.replace(Instant::now()).map(|read| read.elapsed()).unwrap_or_default();
        for (&id, known) in &mut self.devices {
            known.spread.set(self.store.completions(id), elapsed);
        }
        Ok(completions)
    }

    /// Slots whose quarantine is over can be used again.
    fn end_quarantine(&mut self) -> Result<()> {
        self.store.end_quarantine(&mut self.probe.maps)?;
        self.release_slots()
    }

    /// Losses by reason, including reasons without any.
    fn losses(&mut self, refused: u64) -> Result<Losses> {
        let counts = self.earlier.with_losses(self.probe.maps.losses()?);
        let perhaps_lost = self.refusals.read(refused, &counts);
        let (mut by_reason, mut accounted) = (Vec::new(), 0);
        for LossReason { name, counted_by, .. } in LOSS_REASONS {
            let count = match counted_by {
                CountedBy::Probe(reason) => counts[*reason as usize],
                CountedBy::Kernel => self.refusals.lost(),
                CountedBy::Collector => self.unresolved_completions,
            };
            by_reason.push((*name, count));
            accounted += if counted_by.is_accounted() { count } else { 0 };
        }
        accounted += perhaps_lost - self.refusals.lost();
        Ok(Losses { by_reason, accounted })
    }

    /// Audits each device. `diskstats` were read before the counters. If they are the same after them, the device was quiet,
    /// and the audit's baseline is exact.
    fn audit_devices(&mut self, diskstats: &BTreeMap<u64, DiskStats>, lost: &Losses) {
        let counted = self.counted();
        for (id, known) in &mut self.devices {
            if known.device.has_clones || !known.shown {
                continue;
            }
            let counted = counted.get(id).copied().unwrap_or_default();
            let before = diskstats.get(id);
            if !known.was_quiet {
                let Ok(after) = DiskStats::read(&self.host.sysfs, &known.device) else { continue };
                match &mut known.audit {
                    Some(audit) => audit.tighten(&counted, &after),
                    None => known.audit = Some(Audit::open(&counted, &after, lost.accounted)),
                }
                known.was_quiet = before.is_some_and(|before| before.has_same_completions(&after));
            }
            if let (Some(audit), Some(before)) = (&mut known.audit, before) {
                audit.check(before, &counted, lost.accounted);
            }
        }
    }

    /// What the probe has counted, in the groups of the disk statistics.
    fn counted(&self) -> BTreeMap<u64, DiskStats> {
        let mut counted: BTreeMap<u64, DiskStats> = BTreeMap::new();
        for (key, totals) in self.store.iter() {
            let accounts_passthrough = self.probe.kernel.accounts_passthrough()
                || self.devices.get(&key.device()).is_some_and(|known| known.device.accounts_passthrough);
            let name = self.probe.kernel.op_name(key.op());
            if let Some(group) = Group::of(key.op(), &name, accounts_passthrough) {
                counted.entry(key.device()).or_default().add(group, totals.count());
            }
        }
        counted
    }
}
