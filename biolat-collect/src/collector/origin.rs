//! How a collector begins: with a probe that it attaches, or where the last daemon has ended, with the probe of that one.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};
use biolat_model::{
    device::{Device, Selection},
    epoch::time,
};
use biolat_probe::{
    Options, Probe, WorkloadMaps, identity, kernel::Kernel, kernel_btf, slot_bytes, workloads_on,
};
use biolat_system::host::Host;

use super::{
    Collector, KnownDevice,
    audit::Audit,
    id_kind,
    inflight::SurveyTurns,
    keep::{Keep, Kept, Predecessor, ProbeStore, ensure_continuable},
    reference::Reference,
    refusals::Refusals,
    replace::EarlierProbes,
    scan,
    series_store::SeriesStore,
    slots::slots_at_start,
    slow_log::{GoneDevices, SlowIoLog},
    state::record::{DeviceRecord, State},
    sysfs_thread::SysfsThread,
    thread::CollectionStats,
    workloads::WorkloadStore,
};
use crate::{cpus::CpuNodes, scrapes::Scrapes};

impl Collector {
    /// Attaches the probe. The devices are scanned before: with some drives, reading their identity is an I/O.
    pub fn attach(host: Host, selection: Selection, options: Options) -> Result<Self> {
        Self::begin(host, selection, options, None)
    }

    /// Attaches the probe or, if the last daemon has kept one that is the same, continues with that. Keeps its own for the next
    /// one.
    pub(super) fn begin(
        host: Host,
        selection: Selection,
        options: Options,
        kept: Option<Kept>,
    ) -> Result<Self> {
        let types = kernel_btf(&host)?;
        let kernel = Kernel::from_btf(&types)?.with(&options);
        let found = scan(&host, id_kind(&kernel), &BTreeMap::new())?;
        let selection = selection.for_devices(found.iter().map(|device| device.name.as_str()));
        let shown = found.iter().filter(|device| selection.shows(&device.name)).count();
        let slots = slots_at_start(shown, slot_bytes(options.sizes)?);
        let Some(kept) = kept else {
            let probe = Probe::attach(kernel, types, &host, slots, &options)?;
            return Self::new(host, selection, found, probe);
        };
        let boot = host.boot_id().context("cannot read the kernel's id of this boot")?;
        let (predecessor, store, mut useless) = Predecessor::find(kept);
        let store = Arc::new(store);
        let mut last = None;
        if let Some(predecessor) = predecessor {
            let id = predecessor.id;
            let is_same =
                predecessor.state.probe == identity(&kernel, predecessor.state.slots, options.workloads)?;
            let (host, selection, found) = (host.clone(), selection.clone(), found.clone());
            let kept = (predecessor, Arc::clone(&store));
            match Self::take_over(host, selection, &kernel, &options, &boot, kept, found) {
                Ok(collector) if is_same && collector.probe.is_attached() => {
                    log::info!("continuing where biolat ended, with its probe");
                    useless.into_iter().for_each(|id| store.forget(id));
                    return Ok(collector);
                }
                Ok(collector) => last = Some(collector),
                Err(reason) => log_reset(&reason),
            }
            useless.push(id);
        }

        let slots = last.as_ref().map_or(slots, |last| last.probe.maps.slots());
        let mut map_fds = Vec::new();
        let mut probe = Probe::load(kernel.clone(), types, &host, slots, &options, Some(&mut map_fds))?;
        let identity = identity(&kernel, probe.first_slots(), options.workloads)?;
        // Before the last probe is detached: if this one cannot be kept, that one counts on, for the next daemon.
        let keep = Keep::of_loaded(Arc::clone(&store), &probe, &map_fds, identity, options.workloads, boot)?;
        let continued = last.and_then(|mut last| match last.end_probe(&mut probe) {
            Ok(detached) => Some((last, detached)),
            Err(reason) => {
                log_reset(&reason);
                None
            }
        });
        probe.attach_loaded(&host)?;
        let mut collector = match continued {
            Some((mut last, detached)) => {
                log::info!(
                    "continuing where biolat ended, with a new probe, as its version or its options differ: for {:.1?} no \
                     probe counted, and what completed then is reported as missed",
                    detached.elapsed()
                );
                last.continue_with_probe(probe);
                last
            }
            None => Self::new(host, selection, found, probe)?,
        };
        if let Some(keep) = keep {
            collector.begin_to_keep(keep)?;
        }
        // At any time there is one to continue with.
        useless.into_iter().for_each(|id| store.forget(id));
        Ok(collector)
    }

    /// A collector for a probe that has just been attached, and the devices that were found before.
    pub fn new(host: Host, selection: Selection, found: Vec<Device>, probe: Probe) -> Result<Self> {
        let mut collector = Self::without_devices(host, selection, probe, SystemTime::now())?;
        collector.find_first(found)?;
        Ok(collector)
    }

    /// A collector that continues with the probe and the state of the last daemon. Fails if that is of another kernel, or this
    /// version cannot read it.
    fn take_over(
        host: Host,
        selection: Selection,
        kernel: &Kernel,
        options: &Options,
        boot: &str,
        (mut predecessor, store): (Predecessor, Arc<ProbeStore>),
        found: Vec<Device>,
    ) -> Result<Self> {
        let state = &predecessor.state;
        ensure!(state.boot == boot, "its probe is of another boot");
        let of_old = (state.sizes, workloads_on(kernel, state.workloads_limit));
        let of_new = (options.sizes, workloads_on(kernel, options.workloads));
        ensure_continuable(of_old, of_new)?;
        let fds = std::mem::take(&mut predecessor.fds);
        let (slots, limit, epoch) = (state.slots, state.workloads_limit, state.taken_epoch);
        let mut probe = Probe::take_over(kernel.clone(), fds, slots, limit, epoch, options.statistics)?;
        let all_slots = probe.maps.slots();
        let (series, ended) = SeriesStore::continue_from(&mut probe.maps, all_slots, state)?;
        let mut collector = Self::without_devices(host, selection, probe, time(state.started))?;
        collector.store = series;
        collector.continue_from(state).context("its state was not written by biolat")?;
        collector.kept_devices.clone_from(&state.devices);
        for series in ended {
            if !collector.kept_devices.iter().any(|kept| kept.id == series.key.device()) {
                collector.unresolved_completions += series.completions;
            }
        }
        // Before anything is changed, so that every new map is kept.
        collector.keep = Some(Keep::of_predecessor(store, predecessor, &collector.probe));
        collector.end_devices_that_are_gone(&found)?;
        collector.find_first(found)?;
        Ok(collector)
    }

    fn without_devices(host: Host, selection: Selection, probe: Probe, started: SystemTime) -> Result<Self> {
        let cpu_nodes = CpuNodes::read(&host.sysfs);
        let reference = Reference::new(probe.workloads.as_ref().map_or(0, WorkloadMaps::slots));
        Ok(Self {
            host,
            selection,
            probe,
            started,
            scanned: Some(Instant::now()),
            devices: BTreeMap::new(),
            sysfs: SysfsThread::start()?,
            scan_result: Arc::default(),
            known_scan_began: Instant::now(),
            store: SeriesStore::default(),
            unresolved_devices: BTreeMap::new(),
            unresolved_completions: 0,
            grow_failed: false,
            no_room: Default::default(),
            logged_no_room: Default::default(),
            interval: Duration::ZERO,
            survey_turns: SurveyTurns::default(),
            slow: SlowIoLog::default(),
            workloads: WorkloadStore::new(started),
            reference,
            scrapes: Scrapes::default(),
            pod_names_read: None,
            cpu_nodes,
            read: None,
            gone: GoneDevices::default(),
            stats: CollectionStats::default(),
            earlier: EarlierProbes::default(),
            requeue_misses: 0,
            refusals: Refusals::default(),
            keep: None,
            kept_devices: Vec::new(),
        })
    }

    /// The devices that were found before the probe was attached.
    fn find_first(&mut self, found: Vec<Device>) -> Result<()> {
        let left_out = found.iter().filter(|device| self.selection.leaves_out(&device.name)).count();
        if left_out > 0 {
            log::info!(
                "{left_out} loop devices or floppy disks are not shown: --loop or --device selects them"
            );
        }
        self.reconcile(found)?;
        self.provide_slots();
        self.create_foreseen_series();
        if !self.devices.values().any(|known| known.shown) {
            log::warn!(
                "no block device to show yet; devices that appear will be shown, loop devices with --loop"
            );
        }
        Ok(())
    }

    /// Takes over what the state has besides series and devices. `None` if it is not one.
    fn continue_from(&mut self, state: &State) -> Option<()> {
        self.workloads = WorkloadStore::from_records(&state.all_workloads, &state.workloads, Instant::now())?;
        self.reference.continue_from(&state.pending)?;
        self.earlier = EarlierProbes::from_record(&state.earlier)?;
        self.refusals = Refusals::continue_from(state.recursion);
        self.unresolved_completions = state.unresolved_completions;
        self.slow = SlowIoLog::from_records(&state.slow, state.slow_ios.clone())?;
        self.stats = CollectionStats::from_record(&state.collections)?;
        Some(())
    }

    /// Ends the series of devices that the last daemon knew, and that are not found any more.
    fn end_devices_that_are_gone(&mut self, found: &[Device]) -> Result<()> {
        let is_found = |kept: &DeviceRecord| {
            found.iter().any(|device| device.id == kept.id && device.inode == kept.inode)
        };
        while let Some(place) = self.kept_devices.iter().position(|kept| !is_found(kept)) {
            let kept = self.kept_devices.swap_remove(place);
            self.store.end(&mut self.probe.maps, kept.id, |_| {})?;
            if self.selection.shows(&kept.name) {
                log::info!("device {} is gone", kept.name);
            }
        }
        Ok(())
    }
}

fn log_reset(reason: &anyhow::Error) {
    log::warn!("cannot continue where biolat ended, counters start at zero: {reason:#}");
}

impl KnownDevice {
    /// Continues what the last daemon knew of the same device.
    pub(super) fn continue_from(&mut self, kept: &DeviceRecord) {
        self.since = time(kept.since);
        self.was_quiet = kept.was_quiet;
        self.has_dispatch_times = kept.has_dispatch_times;
        self.has_submission_times = kept.has_submission_times;
        self.audit = kept.audit.as_ref().and_then(Audit::from_record);
        self.was_quiet &= self.audit.is_some();
    }
}
