//! Creates a collector, either with a new probe or by taking over the previous daemon's probe.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result, bail, ensure};
use biolat_model::{
    device::{Device, Selection},
    epoch::time,
};
use biolat_probe::{
    LACKS_VOLUMES, Options, Plan, Probe, identity, kernel::Kernel, kernel_btf, slot_bytes, workloads_on,
};
use biolat_system::{cpus::CpuNodes, host::Host};

use super::{
    Collector,
    devices::Devices,
    inflight::Surveys,
    keep::{Keep, Kept, Predecessor, ProbeStore, ensure_continuable},
    refusals::Refusals,
    replace::{EarlierProbes, continue_with_probe, replace_probe},
    series_store::SeriesStore,
    slots::{SlotSupply, slots_at_start},
    slow_log::SlowIoLog,
    state::record::State,
    sysfs_thread::SysfsThread,
    thread::CollectionStats,
    volumes::{MeasureVolumes, Volumes},
    workloads::Workloads,
};
use crate::device::{IdKind, scan_with_stacks};

impl Collector {
    /// Attaches the probe. Scans the devices first, because reading the identity of some drives causes an I/O.
    pub fn attach(host: Host, selection: Selection, options: Options) -> Result<Self> {
        begin(host, selection, options, None)
    }

    /// Creates a collector from a newly attached probe and the devices found before it was attached.
    pub fn new(host: Host, selection: Selection, found: Vec<Device>, probe: Probe) -> Result<Self> {
        let mut collector = without_devices(host, selection, probe, SystemTime::now())?;
        add_initial_devices(&mut collector, found)?;
        Ok(collector)
    }
}

/// Attaches the probe or, if the previous daemon kept an identical one, continues with that one. Keeps the probe for the next
/// daemon.
pub(super) fn begin(
    host: Host,
    selection: Selection,
    options: Options,
    kept: Option<Kept>,
) -> Result<Collector> {
    let kernel = Kernel::from_btf(&kernel_btf(&host)?)?;
    let found = scan_with_stacks(&host, IdKind::of(&kernel.layout), |_| None)?;
    let selection = selection.for_devices(found.iter().map(|device| device.name.as_str()));
    let shown = found.iter().filter(|device| selection.shows(&device.name)).count();
    let room = Plan::of_host(&host.sysfs)?.room();
    let slots = slots_at_start(shown, slot_bytes(options.sizes, room));
    let Some(kept) = kept else {
        let probe = Probe::attach(kernel, &host, slots, &options)?;
        return Collector::new(host, selection, found, probe);
    };
    let boot = host.boot_id().context("cannot read the boot id")?;
    let (predecessor, store, mut obsolete) = Predecessor::find(kept);
    let store = Arc::new(store);
    let mut last = None;
    if let Some(predecessor) = predecessor {
        let id = predecessor.id;
        let is_same = predecessor.state.probe == identity(&kernel, predecessor.state.dimensions(), &options)?;
        let (host, selection, found) = (host.clone(), selection.clone(), found.clone());
        let kept = (predecessor, Arc::clone(&store));
        match take_over(host, selection, &kernel, &options, &boot, kept, found) {
            Ok(collector) if is_same && collector.probe.is_attached() => {
                log::info!("resumed the previous daemon's counters and its probe");
                obsolete.into_iter().for_each(|id| store.forget(id));
                return Ok(collector);
            }
            Ok(collector) => last = Some(collector),
            Err(reason) => log_reset(&reason),
        }
        obsolete.push(id);
    }

    let slots = last.as_ref().map_or(slots, |last| last.probe.maps.slots());
    let mut map_fds = Vec::new();
    let mut probe = Probe::load(kernel.clone(), &host, slots, &options, Some(&mut map_fds))?;
    let identity = identity(&kernel, probe.dimensions(), &options)?;
    // Done before the previous probe is detached: if this one cannot be kept, the previous one keeps counting for the next
    // daemon.
    let keep = Keep::of_loaded(Arc::clone(&store), &probe, &map_fds, identity, options.workloads, boot)?;
    let continued = last.and_then(|mut last| match replace_probe(&mut last, &mut probe) {
        Ok(gap) => Some((last, gap)),
        Err(reason) => {
            log_reset(&reason);
            None
        }
    });
    if !probe.is_attached() {
        probe.attach_loaded(&host)?;
    }
    let mut collector = match continued {
        Some((mut last, gap)) => {
            let gap = gap.map_or_else(|| "an unknown time".to_owned(), |gap| format!("{gap:.1?}"));
            log::info!(
                "resumed the previous daemon's counters with a new probe, because the version or the options differ: completions \
                 were not counted for {gap}, and are reported as missed"
            );
            continue_with_probe(&mut last, probe);
            last
        }
        None => Collector::new(host, selection, found, probe)?,
    };
    if let Some(keep) = keep {
        collector.keep = keep.begin(collector.kept_parts())?;
    }
    // Done last, so there is always a probe to continue with.
    obsolete.into_iter().for_each(|id| store.forget(id));
    Ok(collector)
}

/// Creates a collector that continues with the previous daemon's probe and state. Fails if they belong to another boot or this
/// version cannot read them.
fn take_over(
    host: Host,
    selection: Selection,
    kernel: &Kernel,
    options: &Options,
    boot: &str,
    (mut predecessor, store): (Predecessor, Arc<ProbeStore>),
    found: Vec<Device>,
) -> Result<Collector> {
    let state = &predecessor.state;
    ensure!(state.boot == boot, "its probe was kept before a reboot");
    let old = (state.sizes, workloads_on(kernel, state.workloads_limit));
    let new = (options.sizes, workloads_on(kernel, options.workloads));
    ensure_continuable(old, new)?;
    let fds = std::mem::take(&mut predecessor.fds);
    let options = Options { workloads: state.workloads_limit, ..*options };
    let dimensions = state.dimensions();
    let mut probe = Probe::take_over(kernel.clone(), &host, fds, dimensions, &options, state.taken_epoch)?;
    let all_slots = probe.maps.slots();
    let (series, ended) = SeriesStore::continue_from(&mut probe.maps, all_slots, state)?;
    let mut collector = without_devices(host, selection, probe, time(state.started))?;
    collector.store = series;
    continue_from(&mut collector, state).context("its state was not written by biolat")?;
    collector.devices.add_ended(&ended);
    // Set before anything changes, so every new map is kept.
    collector.keep = Some(Keep::of_predecessor(store, predecessor, &collector.probe)?);
    add_initial_devices(&mut collector, found)?;
    Ok(collector)
}

/// Loads the programs that measure volumes, and begins to measure those that are there.
pub(super) fn measure_volumes(collector: &mut Collector, choice: MeasureVolumes) -> Result<()> {
    if choice == MeasureVolumes::Off {
        return Ok(());
    }
    let probe = match collector.probe.load_volume_probe(&collector.host) {
        Ok(Some(probe)) => probe,
        Ok(None) if choice == MeasureVolumes::On => {
            bail!("cannot measure volumes: {LACKS_VOLUMES}; use --volumes auto or off")
        }
        Err(error) if choice == MeasureVolumes::On => return Err(error),
        Ok(None) => {
            log::info!("volumes are not measured: {LACKS_VOLUMES}");
            return Ok(());
        }
        Err(error) => {
            log::warn!("volumes are not measured: {error:#}");
            return Ok(());
        }
    };
    collector.volumes = Volumes::new(Some(probe));
    let Collector { host, volumes, devices, .. } = collector;
    match devices.begin_volumes(choice) {
        Ok(found) => volumes.reconcile(host, found),
        Err(error) if choice == MeasureVolumes::On => return Err(error),
        // The next scan tries again.
        Err(error) => log::warn!("{error:#}"),
    }
    Ok(())
}

fn without_devices(host: Host, selection: Selection, probe: Probe, started: SystemTime) -> Result<Collector> {
    Ok(Collector {
        interval: Duration::ZERO,
        started,
        devices: Devices::new(host.clone(), selection, IdKind::of(&probe.kernel.layout)),
        sysfs: SysfsThread::start()?,
        cpu_nodes: CpuNodes::read(&host.sysfs),
        lacks_cpus: false,
        store: SeriesStore::default(),
        slots: SlotSupply::default(),
        workloads: Workloads::new(started, &probe),
        volumes: Volumes::new(None),
        surveys: Surveys::default(),
        slow: SlowIoLog::default(),
        refusals: Refusals::default(),
        earlier: EarlierProbes::default(),
        requeue_misses: 0,
        lost_tag_waits: 0,
        read: None,
        stats: CollectionStats::default(),
        keep: None,
        host,
        probe,
    })
}

fn add_initial_devices(collector: &mut Collector, found: Vec<Device>) -> Result<()> {
    let Collector { devices, store, probe, .. } = collector;
    devices.add_initial(found, store, probe)?;
    collector.provide_series();
    Ok(())
}

/// Restores everything but the series from the state. `None` if the state is invalid.
fn continue_from(collector: &mut Collector, state: &State) -> Option<()> {
    collector.devices.continue_from(&state.devices, state.unresolved_completions);
    collector.workloads.continue_from(state)?;
    collector.earlier = EarlierProbes::from_record(&state.earlier)?;
    collector.refusals = Refusals::continue_from(state.recursion);
    collector.slow = SlowIoLog::from_records(&state.slow, state.slow_ios.clone())?;
    collector.stats = CollectionStats::from_record(&state.collections)?;
    Some(())
}

fn log_reset(reason: &anyhow::Error) {
    log::warn!("cannot resume from the previous daemon, counters start at zero: {reason:#}");
}
