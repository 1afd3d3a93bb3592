//! The collector: on each pass the kernel's books, then the probe's counters, then an audit of one by the
//! other, and from all that a [`Snapshot`]. It has a thread of its own and shares nothing but what it makes.

pub mod audit;
mod lifetimes;
mod run;
mod start;
pub mod totals;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, btree_map::Entry},
    ops::RangeInclusive,
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_common::{
    lost::Reason,
    series::{Key, PHASES, Series},
};

use crate::{
    device::{
        Device,
        books::{Books, Group},
        selection::Selection,
        sysfs::{self, Ids},
    },
    histogram::Histogram,
    host::Host,
    probe::{Probe, ProgramCounts, kernel::Kernel, kernel_btf, slot_bytes},
    process,
    snapshot::{DeviceView, Health, ProbeRuns, SeriesView, Snapshot},
};
use audit::Audit;
use lifetimes::Fallow;
use totals::{Growth, Totals};

pub(crate) use lifetimes::slots_at_start;
pub use run::{Command, run};
pub use start::Start;

/// Without any uevent the devices are looked at again after this.
const RESCAN: Duration = Duration::from_secs(30);

/// The collector's state.
pub struct Collector {
    host: Host,
    selection: Selection,
    probe: Probe,
    started: SystemTime,
    scanned: Option<Instant>,
    devices: BTreeMap<u64, Known>,
    series: BTreeMap<Key, Tracked>,
    /// Slots whose device is gone, until no run of the probe can write them any more.
    fallow: Vec<Fallow>,
    /// What free slots hold from former lives.
    floors: HashMap<u32, Series>,
    /// Devices that the probe has seen and sysfs has not, and since when.
    strangers: BTreeMap<u64, Instant>,
    /// Completions of devices that were gone before they had a name.
    unnamed: u64,
    /// Whether the last attempt to make room for more series failed.
    cramped: bool,
    /// Series that the probe found no room for, as it says.
    lacked_room: BTreeSet<Key>,
    /// Those that were told of.
    told_of_no_room: BTreeSet<Key>,
    passes: run::Passes,
}

/// A device that is there.
struct Known {
    device: Device,
    shown: bool,
    since: SystemTime,
    audit: Option<Audit>,
    /// Whether the audit's opening hides nothing: the device was quiet then, or has been since.
    opened_quietly: bool,
    /// Whether the kernel stamps the hand-over to the driver, as far as the last requests tell.
    stamped: bool,
}

/// Completions in no histogram.
struct Losses {
    by_reason: Vec<(&'static str, u64)>,
    /// Those that the kernel has booked, on whichever device that is shown.
    booked: u64,
}

/// A series that is there.
struct Tracked {
    slot: u32,
    /// Whether it was put into the table. Else it is tried again: who stands in its place may be gone.
    in_table: bool,
    totals: Box<Totals>,
}

/// The keys of a device, whatever the op.
fn keys_of(id: u64) -> RangeInclusive<Key> {
    Key::new(id, 0)..=Key::new(id, u32::from(u8::MAX))
}

fn scan(root: &Path, kernel: &Kernel, known: &BTreeMap<u64, Known>) -> Result<Vec<Device>> {
    let ids = if kernel.layout.id_is_sequence != 0 { Ids::Sequence } else { Ids::Number };
    sysfs::scan(root, ids, |id| known.get(&id).map(|known| &known.device))
        .with_context(|| format!("cannot list the block devices in {}", root.join("block").display()))
}

impl Collector {
    /// Attaches the probe and makes a collector for it.
    ///
    /// The devices are asked who they are first: with some, asking is an I/O.
    pub fn attach(host: Host, selection: Selection, statistics: bool) -> Result<Self> {
        let types = kernel_btf(&host)?;
        let kernel = Kernel::from_btf(&types)?;
        let found = scan(&host.sysfs, &kernel, &BTreeMap::new())?;
        let shown = found.iter().filter(|device| selection.shows(&device.name)).count();
        let slots = slots_at_start(shown, slot_bytes()?);
        let probe = Probe::attach(kernel, types, &host, slots, statistics)?;
        Self::new(host, selection, found, probe)
    }

    /// A collector for a probe that has just been attached, and the devices that were there before.
    pub fn new(host: Host, selection: Selection, found: Vec<Device>, probe: Probe) -> Result<Self> {
        let mut collector = Self {
            host,
            selection,
            probe,
            started: SystemTime::now(),
            scanned: Some(Instant::now()),
            devices: BTreeMap::new(),
            series: BTreeMap::new(),
            fallow: Vec::new(),
            floors: HashMap::new(),
            strangers: BTreeMap::new(),
            unnamed: 0,
            cramped: false,
            lacked_room: BTreeSet::new(),
            told_of_no_room: BTreeSet::new(),
            passes: run::Passes::default(),
        };
        collector.meet(found)?;
        collector.provide_slots();
        if !collector.devices.values().any(|known| known.shown) {
            log::warn!("there is no block device to show yet; one that appears will be");
        }
        Ok(collector)
    }

    /// The probe.
    pub fn probe_mut(&mut self) -> &mut Probe {
        &mut self.probe
    }

    /// Looks at the devices again, now.
    pub fn rescan(&mut self) -> Result<()> {
        let found = scan(&self.host.sysfs, &self.probe.kernel, &self.devices)?;
        self.scanned = Some(Instant::now());
        self.meet(found)?;
        self.end_fallow()?;
        self.provide_slots();
        Ok(())
    }

    /// One pass.
    pub fn pass(&mut self) -> Result<Snapshot> {
        if self.scanned.is_none_or(|scanned| scanned.elapsed() >= RESCAN) {
            self.rescan()?;
        }
        let books = self.read_books();
        let mut index = self.probe.maps.index()?;
        self.lacked_room.extend(self.probe.without_room());
        if index.iter().map(|(key, _)| key).chain(&self.lacked_room).any(|key| self.is_strange(*key)) {
            self.rescan()?;
            // Without the series of devices that were found to be gone.
            index = self.probe.maps.index()?;
        }
        self.read_series(&index)?;
        let program = self.probe.program_counts()?;
        let lost = self.losses(program.recursion_misses)?;
        self.check_books(&books, &lost);
        self.forget_strangers()?;
        self.end_fallow()?;
        self.provide_slots();
        self.tell_of_no_room();
        Ok(self.snapshot(lost, program))
    }

    /// Of devices that are shown, and before the counters: see [`audit`]. A device that has just gone has no books; the
    /// next scan takes it out.
    fn read_books(&mut self) -> BTreeMap<u64, Books> {
        let mut books = BTreeMap::new();
        for (&id, known) in self.devices.iter_mut().filter(|(_, known)| known.shown) {
            let device = &mut known.device;
            device.iostats =
                sysfs::keeps_statistics(&self.host.sysfs, &device.name).unwrap_or(device.iostats);
            match Books::of(&self.host.sysfs, device) {
                Ok(read) => {
                    books.insert(id, read);
                }
                Err(_) => self.scanned = None,
            }
        }
        books
    }

    fn read_series(&mut self, index: &[(Key, u32)]) -> Result<()> {
        let mut growth: BTreeMap<u64, Growth> = BTreeMap::new();
        for &(key, slot) in index {
            let now = self.probe.maps.read(slot)?;
            let tracked = match self.series.entry(key) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let floor = self.floors.remove(&slot).unwrap_or(Series::ZERO);
                    let totals = Box::new(Totals::from_floor(floor));
                    entry.insert(Tracked { slot, in_table: false, totals })
                }
            };
            if !tracked.in_table {
                tracked.in_table = self.probe.maps.publish(key, slot)?;
            }
            *growth.entry(key.device()).or_default() += tracked.totals.add(&now);
        }
        for (id, growth) in growth.into_iter().filter(|(_, growth)| growth.total > 0) {
            if let Some(known) = self.devices.get_mut(&id) {
                known.stamped = growth.split > 0;
            }
        }
        Ok(())
    }

    /// Losses by reason, all of them, zeros included.
    fn losses(&mut self, recursion: u64) -> Result<Losses> {
        let counts = self.probe.maps.losses()?;
        let mut by_reason: Vec<_> =
            Reason::ALL.into_iter().map(|reason| (reason.name(), counts[reason as usize])).collect();
        by_reason.push(("recursion", recursion));
        by_reason.push(("unknown_device", self.unnamed));
        let booked = Reason::ALL.into_iter().filter(|reason| reason.is_accounted());
        let booked = booked.map(|reason| counts[reason as usize]).sum::<u64>() + recursion;
        Ok(Losses { by_reason, booked })
    }

    /// Audits each device. `books` were read before the counters; where they are the same again after them, the
    /// device was quiet and nothing is left to be found out about what was before.
    fn check_books(&mut self, books: &BTreeMap<u64, Books>, lost: &Losses) {
        let counted = self.counted();
        for (id, known) in &mut self.devices {
            if known.device.has_clones || !known.shown {
                continue;
            }
            let counted = counted.get(id).copied().unwrap_or_default();
            let before = books.get(id);
            if !known.opened_quietly {
                let Ok(after) = Books::of(&self.host.sysfs, &known.device) else { continue };
                match &mut known.audit {
                    Some(audit) => audit.tighten(&counted, &after),
                    None => known.audit = Some(Audit::open(&counted, &after, lost.booked)),
                }
                known.opened_quietly = before == Some(&after);
            }
            if let (Some(audit), Some(before)) = (&mut known.audit, before) {
                audit.check(before, &counted, lost.booked);
            }
        }
    }

    /// What the probe has counted, in the groups of the books.
    fn counted(&self) -> BTreeMap<u64, Books> {
        let mut counted: BTreeMap<u64, Books> = BTreeMap::new();
        for (key, tracked) in &self.series {
            let passthrough =
                self.devices.get(&key.device()).is_some_and(|known| known.device.books_passthrough);
            let name = self.probe.kernel.op_name(key.op());
            if let Some(group) = Group::of(key.op(), &name, passthrough) {
                counted.entry(key.device()).or_default().add(group, tracked.totals.count());
            }
        }
        counted
    }

    fn snapshot(&self, lost: Losses, program: ProgramCounts) -> Snapshot {
        let runs = ProbeRuns { count: program.runs, time: Duration::from_nanos(program.run_time_ns) };
        let mut devices: Vec<_> = self
            .devices
            .iter()
            .filter(|(_, known)| known.shown)
            .map(|(&id, known)| self.device_view(id, known))
            .collect();
        devices.sort_by(|a, b| a.device.name.cmp(&b.device.name));
        Snapshot {
            taken: SystemTime::now(),
            started: self.started,
            devices,
            lost: lost.by_reason,
            health: self.health(),
            probe: self.probe.has_statistics().then_some(runs),
            process: process::read(&self.host.procfs),
        }
    }

    /// Reads and writes are shown from the start, so that their first increase is not missed.
    fn device_view(&self, id: u64, known: &Known) -> DeviceView {
        let kernel = &self.probe.kernel;
        let mut series: Vec<SeriesView> = self
            .series
            .range(keys_of(id))
            .map(|(key, tracked)| tracked.totals.view(kernel.op_name(key.op()), kernel.statuses_since_6_10))
            .collect();
        for op in ["write", "read"] {
            if !series.iter().any(|view| view.op == op) {
                let histograms = [const { Histogram::new() }; PHASES];
                series.insert(0, SeriesView { op: op.to_owned(), bytes: 0, histograms, errors: Vec::new() });
            }
        }
        let total = known.device.iostats;
        DeviceView {
            device: known.device.clone(),
            since: known.since,
            phases: [total && known.stamped, total && known.stamped, total],
            series,
            unseen: known.audit.as_ref().map(Audit::unseen).unwrap_or_default(),
        }
    }

    /// How the collector fares.
    #[must_use]
    pub fn health(&self) -> Health {
        let slots = self.probe.maps.slots();
        Health {
            durations: self.passes.histogram(),
            failures: self.passes.failures,
            overruns: self.passes.overruns,
            slots: u64::from(slots),
            map_bytes: u64::from(slots) * self.probe.maps.slot_bytes(),
        }
    }
}
