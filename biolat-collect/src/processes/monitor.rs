//! The thread that attaches and reads the programs.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, RecvTimeoutError},
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_common::{
    lost::{Counts, Reason},
    status,
};
use biolat_model::{
    band_histogram::BandHistogram,
    device::{Device, Selection},
    name::Name,
};
use biolat_probe::{
    kernel::{Kernel, processes::ProcessTracing},
    kernel_btf,
    processes::{ProcessProbe, RefusedRuns},
};
use biolat_system::{
    c_library,
    host::Host,
    rights::{self, Role},
};
use tokio::sync::mpsc;

use super::{
    audit::Audit,
    events::{Event, Output, ProcessUsage, ProcessWindow, Settings},
    ios::{ProcessIo, Sampling},
    names::Names,
    regions::Regions,
};
use crate::{
    collector::slow_log::Clocks,
    device::{self, IdKind, diskstats::DiskStats, sysfs},
};

/// Commands to the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// Scan the devices, because a disk appeared or disappeared.
    Rescan,
    /// Send what is left and stop.
    Stop,
}

/// How often the devices are scanned: the number of a device's tags can change without a uevent.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two scans.
const RESCAN_INTERVAL: Duration = Duration::from_millis(100);

/// How often single I/Os are read.
const IOS_INTERVAL: Duration = Duration::from_millis(50);

/// The kernel's sector of a request without a position.
const NO_SECTOR: u64 = u64::MAX;

pub(super) struct Monitor {
    probe: ProcessProbe,
    kernel: Kernel,
    host: Host,
    selection: Selection,
    output: Output,
    events: mpsc::Sender<Result<Event>>,
    /// The selected devices, by id.
    devices: BTreeMap<u64, Device>,
    /// Their names, and the names of devices that have disappeared since the last output.
    device_names: BTreeMap<u64, String>,
    regions: Regions,
    names: Names,
    losses: Losses,
    audit: Audit,
    sampling: Sampling,
    dropped: u64,
    began: Instant,
    renewed_names: Instant,
}

/// Lost completions so far.
#[derive(Default)]
struct Losses {
    lost: Counts,
    refused: RefusedRuns,
}

impl Monitor {
    /// Attaches the programs and drops the privileges of the calling thread.
    pub(super) fn attach(settings: Settings, events: mpsc::Sender<Result<Event>>) -> Result<Self> {
        let Settings { host, selection, output, seccomp } = settings;
        let btf = kernel_btf(&host)?;
        let (kernel, tracing) = (Kernel::from_btf(&btf)?, ProcessTracing::from_btf(&btf)?);
        drop(btf);
        let found = scan(&host, &kernel, &BTreeMap::new())?;
        let selection = selection.for_devices(found.iter().map(|device| device.name.as_str()));
        let shown = found.iter().filter(|device| selection.shows(&device.name));
        let regions = Regions::plan(shown.filter_map(|device| sysfs::tags(&host.sysfs, &device.name)));
        let probe = ProcessProbe::load(&kernel, &tracing, &host, regions.entries(), output == Output::Ios)?;
        c_library::trim_heap();
        let now = Instant::now();
        let mut monitor = Self {
            names: Names::new(host.procfs.clone()),
            probe,
            kernel,
            host,
            selection,
            output,
            events,
            devices: BTreeMap::new(),
            device_names: BTreeMap::new(),
            regions,
            losses: Losses::default(),
            audit: Audit::default(),
            sampling: Sampling::new(now),
            dropped: 0,
            began: now,
            renewed_names: now,
        };
        monitor.update_devices(found)?;
        monitor.probe.attach()?;
        // Only now is everything counted.
        for (id, completed) in monitor.completions() {
            monitor.audit.begin(id, completed);
        }
        monitor.began = Instant::now();
        let waiting = move || rights::drop_privileges(Role::WaitingForRuns, seccomp);
        monitor.probe.grace_periods.in_thread(waiting)??;
        rights::drop_privileges(Role::Collecting { keeping: None }, seccomp)?;
        Ok(monitor)
    }

    /// Sends events until a command stops it or nobody receives them.
    pub(super) fn run(mut self, commands: &Receiver<Command>) -> Result<()> {
        let mut last_scan = Instant::now();
        let mut next_scan = last_scan + SCAN_INTERVAL;
        let interval = match self.output {
            Output::Windows(interval) => interval,
            Output::Ios => Some(IOS_INTERVAL),
        };
        let mut next_output = interval.map(|interval| self.began + interval);
        while !self.events.is_closed() {
            let now = Instant::now();
            let next = next_output.map_or(next_scan, |output| output.min(next_scan));
            match commands.recv_timeout(next.saturating_duration_since(now)) {
                Ok(Command::Rescan) => next_scan = next_scan.min(last_scan + RESCAN_INTERVAL),
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return self.send_output(),
            }
            let now = Instant::now();
            if now >= next_scan {
                let found = scan(&self.host, &self.kernel, &self.devices)?;
                self.update_devices(found)?;
                last_scan = now;
                next_scan = now + SCAN_INTERVAL;
            }
            if let (Some(output), Some(interval)) = (next_output, interval)
                && now >= output
            {
                self.send_output()?;
                // An output that took too long delays the next one.
                next_output = Some((output + interval).max(Instant::now()));
            }
        }
        Ok(())
    }

    fn send_output(&mut self) -> Result<()> {
        match self.output {
            Output::Windows(_) => {
                let window = self.window()?;
                self.send(Event::Window(window));
            }
            Output::Ios => self.send_ios()?,
        }
        self.device_names.retain(|id, _| self.devices.contains_key(id));
        Ok(())
    }

    /// Fails only if nobody receives any more, which [`run`](Self::run) notices.
    fn send(&self, event: Event) {
        let _ = self.events.blocking_send(Ok(event));
    }

    fn window(&mut self) -> Result<ProcessWindow> {
        // The window ends when the next epoch begins, not when its counters have been read.
        let (now, ended) = (Instant::now(), SystemTime::now());
        let completions = self.completions();
        let usage = self.probe.next_epoch()?;
        for usage in &usage {
            self.audit.count(usage.key.series.device(), usage.cells.iter().sum());
        }
        let missed = completions.into_iter().map(|(id, completed)| self.audit.missed(id, completed)).sum();
        let mut window = ProcessWindow {
            ended,
            length: now - std::mem::replace(&mut self.began, now),
            models: self.devices.values().map(|device| (device.name.clone(), device.model.clone())).collect(),
            usage: Vec::with_capacity(usage.len()),
            lost: self.losses.since_last(&self.probe, missed)?,
        };
        for usage in usage {
            let (series, pid) = (usage.key.series, usage.key.process);
            let Some(device) = self.device_names.get(&series.device()) else { continue };
            window.usage.push(ProcessUsage {
                process: self.names.find(pid, || self.probe.name(pid).ok()?),
                device: device.clone(),
                op: self.kernel.op_name(series.op()),
                bytes: usage.bytes,
                errors: usage.errors,
                latency: BandHistogram::from_cells(&usage.cells, usage.device_ns.into()),
            });
        }
        self.names.forget_others();
        Ok(window)
    }

    fn send_ios(&mut self) -> Result<()> {
        let mut records = self.probe.ios();
        // Each CPU's are in order.
        records.sort_by_key(|record| record.completed_ns);
        let clocks = Clocks::now();
        let mut ios = Vec::with_capacity(records.len());
        for record in records {
            let Some(device) = self.device_names.get(&record.series.device()) else { continue };
            let pid = record.process;
            ios.push(ProcessIo {
                completed: clocks.time_of_day(record.completed_ns),
                process: self.names.find(pid, || self.probe.name(pid).ok()?),
                device: device.clone(),
                op: self.kernel.op_name(record.series.op()),
                sector: (record.sector != NO_SECTOR).then_some(record.sector),
                bytes: record.bytes,
                status: status::name(record.status as usize, self.kernel.statuses_since_6_10),
                queue: Duration::from_nanos(record.queue_ns),
                device_latency: Duration::from_nanos(record.device_ns),
                one_of: record.one_of,
            });
        }
        if !ios.is_empty() {
            self.send(Event::Ios(ios));
        }
        let counts = self.probe.io_counts()?;
        let dropped = counts.dropped - std::mem::replace(&mut self.dropped, counts.dropped);
        if dropped > 0 {
            self.send(Event::Dropped(dropped));
        }
        if let Some(one_of) = self.sampling.next(counts.completed, Instant::now()) {
            self.probe.send_one_of(one_of)?;
            self.send(Event::Sampling(one_of));
        }
        if self.renewed_names.elapsed() >= SCAN_INTERVAL {
            self.renewed_names = Instant::now();
            self.names.forget_others();
            self.probe.renew_names()?;
        }
        Ok(())
    }

    /// The completions of each measured device according to the disk statistics.
    fn completions(&self) -> Vec<(u64, u64)> {
        let measured = self.regions.devices().into_iter().filter_map(|id| self.devices.get(&id));
        let read = |device: &Device| {
            Some((device.id, DiskStats::read(&self.host.sysfs, device).ok()?.completions()))
        };
        measured.filter_map(read).collect()
    }

    /// Gives each selected device a region, and frees the regions of all other devices.
    fn update_devices(&mut self, found: Vec<Device>) -> Result<()> {
        let selected = found.into_iter().filter(|device| self.selection.shows(&device.name));
        let mut known: BTreeMap<_, _> = selected.map(|device| (device.id, device)).collect();
        std::mem::swap(&mut known, &mut self.devices);
        self.device_names.extend(self.devices.values().map(|device| (device.id, device.name.clone())));
        for gone in self.regions.devices() {
            if !self.devices.contains_key(&gone) {
                self.probe.remove_region(gone)?;
                self.regions.remove(gone);
                self.audit.end(gone);
            }
        }
        for (&id, device) in &self.devices {
            let Some(tags) = sysfs::tags(&self.host.sysfs, &device.name) else { continue };
            if self.regions.fits(id, tags) {
                continue;
            }
            let is_placed = match self.regions.place(id, tags) {
                Some(region) => self.probe.set_region(region)?,
                None => false,
            };
            if is_placed {
                if !known.contains_key(&id)
                    && let Ok(stats) = DiskStats::read(&self.host.sysfs, device)
                {
                    self.audit.begin(id, stats.completions());
                }
            } else {
                self.audit.end(id);
                self.regions.remove(id);
                self.probe.remove_region(id)?;
                if !known.contains_key(&id) {
                    // Must not block: before the programs are attached, nobody receives.
                    let _ = self.events.try_send(Ok(Event::NotMeasured(device.name.clone())));
                }
            }
        }
        Ok(())
    }
}

fn scan(host: &Host, kernel: &Kernel, known: &BTreeMap<u64, Device>) -> Result<Vec<Device>> {
    let ids = IdKind::of(&kernel.layout);
    device::scan(&host.sysfs, ids, |id| known.get(&id))
        .with_context(|| format!("cannot list the block devices in {}", host.sysfs.join("block").display()))
}

impl Losses {
    /// Returns the losses since the last call, by reason. `missed` is how many completions the audit has found; those with another
    /// reason are not counted twice.
    fn since_last(&mut self, probe: &ProcessProbe, missed: u64) -> Result<BTreeMap<Name, u64>> {
        let (lost, refused) = (probe.lost()?, probe.refused()?);
        let of_reason = |reason: Reason| {
            let place = reason as usize;
            (Name::from(reason.name()), lost[place] - self.lost[place])
        };
        let recursion = refused.completions - self.refused.completions;
        let (_, no_room) = of_reason(Reason::NoRoom);
        let missed = missed.saturating_sub(recursion + no_room);
        let others = [(Name::from("recursion"), recursion), (Name::from("missed"), missed)];
        let by_reason = Reason::ALL.into_iter().map(of_reason).chain(others);
        let by_reason = by_reason.filter(|(_, count)| *count > 0).collect();
        *self = Self { lost, refused };
        Ok(by_reason)
    }
}
