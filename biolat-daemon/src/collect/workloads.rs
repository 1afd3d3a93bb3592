//! The workloads: what each cgroup has done on each device, and who it is. A cgroup that is gone is kept for a while.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    size::BAND_CELLS,
    workload::{Entry, KERNEL, OTHER},
};

use super::Collector;
use crate::{
    band_histogram::BandHistogram,
    cgroup::{Identity, PodNames},
    probe::{EpochCounts, Probe, SeenCgroup},
    snapshot::{WorkloadUsage, WorkloadView},
};

/// How long a cgroup that is gone is shown.
const SHOWN_AFTER_END: Duration = Duration::from_secs(5 * 60);

/// After this, the path of a cgroup is read again: with cgroup v1 it may have another name.
const RENAME_INTERVAL: Duration = Duration::from_secs(60);

/// How cgroups that have no room of their own are shown together.
const OTHER_NAME: &str = "other";

/// Every workload since the probe was attached, by serial number.
#[derive(Default)]
pub(super) struct WorkloadStore {
    workloads: BTreeMap<u64, Workload>,
    /// The serial number of the root, whose I/Os are the kernel's, too.
    root: Option<u64>,
    /// When the counts were taken last.
    taken: Option<SystemTime>,
    logged_other: bool,
}

struct Workload {
    /// None of the kernel and of all others.
    cgroup: Option<SeenCgroup>,
    identity: Identity,
    /// When its counts were zero.
    since: SystemTime,
    /// When its path was read.
    named: Instant,
    /// Since when it has been gone.
    gone: Option<Instant>,
    usage: BTreeMap<Key, WorkloadTotals>,
}

/// What a workload has done on one device with one op.
pub(super) struct WorkloadTotals {
    pub(super) queue_ns: u128,
    pub(super) device_ns: u128,
    pub(super) unsplit_ns: u128,
    pub(super) bytes: u64,
    pub(super) errors: u64,
    pub(super) cells: [u64; BAND_CELLS],
}

impl Default for WorkloadTotals {
    fn default() -> Self {
        Self { queue_ns: 0, device_ns: 0, unsplit_ns: 0, bytes: 0, errors: 0, cells: [0; BAND_CELLS] }
    }
}

/// The patterns name every field and have no `..`: a new field does not compile until it is added and exposed.
#[deny(unused_variables)]
impl WorkloadTotals {
    fn add(&mut self, entry: &Entry) {
        let Entry { workload: _, series: _, epoch: _, queue_ns, device_ns, unsplit_ns, bytes, errors, cells } =
            entry;
        self.queue_ns += u128::from(*queue_ns);
        self.device_ns += u128::from(*device_ns);
        self.unsplit_ns += u128::from(*unsplit_ns);
        self.bytes += bytes;
        self.errors += errors;
        for (sum, count) in self.cells.iter_mut().zip(cells) {
            *sum += u64::from(*count);
        }
    }

    fn add_totals(&mut self, other: &Self) {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = other;
        self.queue_ns += queue_ns;
        self.device_ns += device_ns;
        self.unsplit_ns += unsplit_ns;
        self.bytes += bytes;
        self.errors += errors;
        for (sum, count) in self.cells.iter_mut().zip(cells) {
            *sum += count;
        }
    }

    fn view(&self, device: &str, op: String) -> WorkloadUsage {
        let Self { queue_ns, device_ns, unsplit_ns, bytes, errors, cells } = self;
        let seconds = |ns: u128| ns as f64 / 1e9;
        WorkloadUsage {
            device: device.to_owned(),
            op,
            bytes: *bytes,
            errors: *errors,
            queue_seconds: seconds(*queue_ns),
            device_seconds: seconds(*device_ns),
            latency: BandHistogram::from_cells(cells, queue_ns + device_ns + unsplit_ns),
        }
    }
}

impl Workload {
    fn new(cgroup: Option<SeenCgroup>, since: SystemTime, now: Instant, names: &PodNames) -> Self {
        let path = cgroup.as_ref().map_or("/", |cgroup| &cgroup.path);
        let identity = Identity::of_path(path).with_names(names);
        Self { cgroup, identity, since, named: now, gone: None, usage: BTreeMap::new() }
    }

    fn path(&self) -> Option<&str> {
        self.cgroup.as_ref().map(|cgroup| cgroup.path.as_str())
    }
}

/// What the store asks the kernel.
pub(super) trait Cgroups {
    /// The cgroup with this serial number, if the probe has recorded it.
    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>>;
    /// Makes the probe record it again, or makes room for another one.
    fn forget(&mut self, workload: u64) -> Result<()>;
    /// Whether it still exists.
    fn exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool>;
}

impl WorkloadStore {
    /// Adds the counts of an epoch. Those of a cgroup that is not known any more are added to the others.
    pub(super) fn add(&mut self, counts: &EpochCounts, cgroups: &mut impl Cgroups, names: &PodNames) {
        let since = self.taken.replace(SystemTime::now()).unwrap_or_else(SystemTime::now);
        let now = Instant::now();
        let mut active = BTreeSet::new();
        for (&(key, number), entry) in counts {
            let number = self.known(number, since, now, cgroups, names);
            active.insert(number);
            if let Some(workload) = self.workloads.get_mut(&number) {
                workload.gone = None;
                workload.usage.entry(key).or_default().add(entry);
            }
        }
        if active.contains(&OTHER) && !std::mem::replace(&mut self.logged_other, true) {
            log::warn!(
                "there is no room for every cgroup: I/O of the others is counted together, as {OTHER_NAME} (see --workloads)"
            );
        }
        self.name_again(now, cgroups, names);
        self.find_gone(&active, now, cgroups);
    }

    /// The number under which a workload is kept.
    fn known(
        &mut self,
        number: u64,
        since: SystemTime,
        now: Instant,
        cgroups: &mut impl Cgroups,
        names: &PodNames,
    ) -> u64 {
        let number = if self.root == Some(number) { KERNEL } else { number };
        if self.workloads.contains_key(&number) {
            return number;
        }
        let cgroup = match number {
            KERNEL | OTHER => None,
            _ => match cgroups.cgroup(number) {
                Ok(Some(cgroup)) if cgroup.path == "/" => {
                    self.root = Some(number);
                    return self.known(KERNEL, since, now, cgroups, names);
                }
                Ok(Some(cgroup)) => Some(cgroup),
                _ => return self.known(OTHER, since, now, cgroups, names),
            },
        };
        self.workloads.insert(number, Workload::new(cgroup, since, now, names));
        self.absorb_namesakes(number, cgroups);
        number
    }

    /// A cgroup that is created again with the same path, as when a service restarts, continues the counts of the former one.
    fn absorb_namesakes(&mut self, number: u64, cgroups: &mut impl Cgroups) {
        let Some(path) = self.workloads.get(&number).and_then(Workload::path).map(str::to_owned) else {
            return;
        };
        let is_namesake =
            |&other: &u64, workload: &mut Workload| other != number && workload.path() == Some(&path);
        let former: Vec<_> = self.workloads.extract_if(.., is_namesake).collect();
        let Some(workload) = self.workloads.get_mut(&number) else { return };
        for (former, Workload { since, usage, .. }) in former {
            // After an error it takes up room that another cgroup could have, until the daemon restarts.
            let _ = cgroups.forget(former);
            workload.since = workload.since.min(since);
            for (key, totals) in usage {
                workload.usage.entry(key).or_default().add_totals(&totals);
            }
        }
    }

    /// Reads paths again that were read some time ago.
    fn name_again(&mut self, now: Instant, cgroups: &mut impl Cgroups, names: &PodNames) {
        let mut renamed = Vec::new();
        for (&number, workload) in &mut self.workloads {
            if now.duration_since(workload.named) < RENAME_INTERVAL || workload.gone.is_some() {
                continue;
            }
            workload.named = now;
            let Some(cgroup) = &mut workload.cgroup else { continue };
            if let Ok(Some(recorded)) = cgroups.cgroup(number) {
                if cgroup.path != recorded.path {
                    renamed.push(number);
                }
                *cgroup = recorded;
                workload.identity = Identity::of_path(&cgroup.path).with_names(names);
                // An error here is harmless: the next time is in a minute.
                let _ = cgroups.forget(number);
            }
        }
        for number in renamed {
            self.absorb_namesakes(number, cgroups);
        }
    }

    /// Finds workloads whose cgroup is gone, and ends those that have been gone for some time.
    fn find_gone(&mut self, active: &BTreeSet<u64>, now: Instant, cgroups: &mut impl Cgroups) {
        self.workloads.retain(|&number, workload| {
            let Some(cgroup) = &workload.cgroup else { return true };
            if active.contains(&number) {
                return true;
            }
            match workload.gone {
                None => {
                    if matches!(cgroups.exists(number, cgroup), Ok(false)) {
                        workload.gone = Some(now);
                    }
                    true
                }
                // It stays until the probe has room for another one.
                Some(gone) => now.duration_since(gone) < SHOWN_AFTER_END || cgroups.forget(number).is_err(),
            }
        });
    }

    /// Removes what was done on devices that are gone.
    pub(super) fn retain_series(&mut self, is_here: impl Fn(Key) -> bool) {
        for workload in self.workloads.values_mut() {
            workload.usage.retain(|&key, _| is_here(key));
        }
    }

    /// How a workload is shown; empty if it is unknown.
    pub(super) fn path(&self, number: u64) -> &str {
        let number = if self.root == Some(number) { KERNEL } else { number };
        self.workloads.get(&number).map_or("", |workload| shown_path(number, workload))
    }

    /// Every workload, with what it has done on the devices that have a name. `beyond` are series that are not counted by
    /// workload: the others have done it.
    pub(super) fn views<'a>(
        &self,
        beyond: &[(Key, WorkloadTotals)],
        started: SystemTime,
        device: impl Fn(u64) -> Option<&'a str>,
        op: impl Fn(u32) -> String,
    ) -> Vec<WorkloadView> {
        let view = |key: Key, totals: &WorkloadTotals| Some(totals.view(device(key.device())?, op(key.op())));
        let views = self.workloads.iter().map(|(&number, workload)| WorkloadView {
            cgroup: shown_path(number, workload).to_owned(),
            identity: workload.identity.clone(),
            since: workload.since,
            is_gone: workload.gone.is_some(),
            usage: workload.usage.iter().filter_map(|(&key, totals)| view(key, totals)).collect(),
        });
        let mut views: Vec<_> = views.collect();
        let beyond: Vec<_> = beyond.iter().filter_map(|(key, totals)| view(*key, totals)).collect();
        match views.iter_mut().find(|view| view.cgroup == OTHER_NAME) {
            Some(others) => others.usage.extend(beyond),
            None => views.push(WorkloadView {
                cgroup: OTHER_NAME.to_owned(),
                identity: Identity::default(),
                since: started,
                is_gone: false,
                usage: beyond,
            }),
        }
        views.retain(|view| !view.usage.is_empty());
        views.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        views
    }
}

fn shown_path(number: u64, workload: &Workload) -> &str {
    workload.path().unwrap_or(if number == OTHER { OTHER_NAME } else { "/" })
}

impl Cgroups for Probe {
    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>> {
        self.workloads.as_ref().map_or(Ok(None), |maps| maps.cgroup(workload))
    }

    fn forget(&mut self, workload: u64) -> Result<()> {
        self.workloads.as_mut().map_or(Ok(()), |maps| maps.forget_cgroup(workload))
    }

    fn exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool> {
        self.cgroup_exists(workload, cgroup)
    }
}

impl Collector {
    /// Reads what the workloads have done since the last call.
    pub(super) fn read_workloads(&mut self) -> Result<()> {
        let Some(maps) = &mut self.probe.workloads else { return Ok(()) };
        let counts = maps.take()?;
        self.reference.add(&counts);
        self.workloads.add(&counts, &mut self.probe, &self.pod_names);
        Ok(())
    }
}
