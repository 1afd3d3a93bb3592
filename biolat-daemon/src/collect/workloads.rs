//! The workloads: what each cgroup has done on each device, and who it is. A cgroup that is gone is kept for a while.

mod kept;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    workload::{KERNEL, OTHER},
};

use super::{Collector, state::encoded::Encoded, workload_totals::WorkloadTotals};
use crate::{
    cgroup::{Identity, PodNames},
    probe::{EpochCounts, Probe, SeenCgroup},
    snapshot::WorkloadView,
};

/// How long a cgroup that is gone is shown, if it has been scraped.
const SHOWN_AFTER_END: Duration = Duration::from_secs(5 * 60);

/// How long a cgroup that is gone is shown while nobody scrapes, although somebody did before.
const SHOWN_WITHOUT_SCRAPE: Duration = Duration::from_secs(60 * 60);

/// After this, the path of a cgroup is read again: with cgroup v1 it may have another name.
const RENAME_INTERVAL: Duration = Duration::from_secs(10);

/// After this, the names of pods are read again.
const POD_NAMES_INTERVAL: Duration = Duration::from_secs(30);

/// How cgroups that have no room of their own are shown together.
const OTHER_NAME: &str = "other";

/// Every workload since the probe was attached, by serial number.
pub(super) struct WorkloadStore {
    workloads: BTreeMap<u64, Workload>,
    /// I/Os of workloads that are not shown any more.
    ended: BTreeMap<Key, u64>,
    /// The serial number of the root, whose I/Os are the kernel's, too.
    root: Option<u64>,
    /// When the counts were taken last.
    taken: SystemTime,
    logged_other: bool,
    /// Whether there is a pod or container whose names have not been looked for.
    has_unnamed: bool,
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
    gone: Option<Gone>,
    usage: BTreeMap<Key, WorkloadTotals>,
    /// All of this, for the next daemon.
    encoded: Encoded,
}

/// When a workload was found to be gone.
#[derive(Clone, Copy)]
struct Gone {
    since: Instant,
    /// The scrapes before.
    scrapes: u64,
}

impl Gone {
    /// Whether its last counts have been shown for long enough.
    fn may_end(self, now: Instant, scrapes: u64) -> bool {
        let is_scraped = scrapes == 0 || scrapes > self.scrapes;
        now.duration_since(self.since) >= if is_scraped { SHOWN_AFTER_END } else { SHOWN_WITHOUT_SCRAPE }
    }
}

impl Workload {
    fn new(number: u64, cgroup: Option<SeenCgroup>, since: SystemTime, now: Instant) -> Self {
        let identity = Identity::of_path(shown_path(number, cgroup.as_ref()));
        let (usage, encoded) = (BTreeMap::new(), Encoded::default());
        Self { cgroup, identity, since, named: now, gone: None, usage, encoded }
    }

    /// Whether it is a pod or container in one, by an id that is not a name.
    fn may_have_names(&self) -> bool {
        self.identity.pod.is_empty()
            && !(self.identity.pod_uid.is_empty() && self.identity.container_id.is_empty())
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
    /// For a probe that was attached at this time.
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            workloads: BTreeMap::new(),
            ended: BTreeMap::new(),
            root: None,
            taken: started,
            logged_other: false,
            has_unnamed: false,
        }
    }

    /// Adds the counts of an epoch, after so many scrapes. Those of a cgroup that is not known any more are added to the others.
    pub(super) fn add(
        &mut self,
        counts: &EpochCounts,
        now: Instant,
        scrapes: u64,
        cgroups: &mut impl Cgroups,
    ) {
        let since = std::mem::replace(&mut self.taken, SystemTime::now());
        let mut active = BTreeSet::new();
        for (&(key, number), entry) in counts {
            let number = self.known(number, since, now, cgroups);
            active.insert(number);
            if let Some(workload) = self.workloads.get_mut(&number) {
                workload.encoded.forget();
                workload.gone = None;
                workload.usage.entry(key).or_default().add(entry);
            }
        }
        if active.contains(&OTHER) && !std::mem::replace(&mut self.logged_other, true) {
            log::warn!(
                "there is no room for every cgroup: I/O of the others is counted together, as {OTHER_NAME} (see --workloads)"
            );
        }
        self.name_again(now, cgroups);
        self.find_gone(&active, now, scrapes, cgroups);
    }

    /// The number under which a workload is kept.
    fn known(&mut self, number: u64, since: SystemTime, now: Instant, cgroups: &mut impl Cgroups) -> u64 {
        let number = if self.root == Some(number) { KERNEL } else { number };
        if self.workloads.contains_key(&number) {
            return number;
        }
        let cgroup = match number {
            KERNEL | OTHER => None,
            _ => match cgroups.cgroup(number) {
                Ok(Some(cgroup)) if cgroup.path == "/" => {
                    self.root = Some(number);
                    return self.known(KERNEL, since, now, cgroups);
                }
                Ok(Some(cgroup)) => Some(cgroup),
                _ => return self.known(OTHER, since, now, cgroups),
            },
        };
        let workload = Workload::new(number, cgroup, since, now);
        self.has_unnamed |= workload.may_have_names();
        self.workloads.insert(number, workload);
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
        workload.encoded.forget();
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
    fn name_again(&mut self, now: Instant, cgroups: &mut impl Cgroups) {
        let mut renamed = Vec::new();
        for (&number, workload) in &mut self.workloads {
            if now.duration_since(workload.named) < RENAME_INTERVAL || workload.gone.is_some() {
                continue;
            }
            workload.named = now;
            let Some(cgroup) = &workload.cgroup else { continue };
            if let Ok(Some(recorded)) = cgroups.cgroup(number) {
                if cgroup.path != recorded.path {
                    renamed.push(number);
                    workload.encoded.forget();
                    workload.identity = Identity::of_path(&recorded.path);
                    self.has_unnamed |= workload.may_have_names();
                    workload.cgroup = Some(recorded);
                }
                // An error here is harmless: the next time is in some seconds.
                let _ = cgroups.forget(number);
            }
        }
        for number in renamed {
            self.absorb_namesakes(number, cgroups);
        }
    }

    /// Finds workloads whose cgroup is gone, and ends those that have been gone for some time.
    fn find_gone(&mut self, active: &BTreeSet<u64>, now: Instant, scrapes: u64, cgroups: &mut impl Cgroups) {
        let ended = self.workloads.extract_if(.., |&number, workload| {
            let Some(cgroup) = &workload.cgroup else { return false };
            if active.contains(&number) {
                return false;
            }
            match workload.gone {
                None => {
                    if matches!(cgroups.exists(number, cgroup), Ok(false)) {
                        workload.encoded.forget();
                        workload.gone = Some(Gone { since: now, scrapes });
                    }
                    false
                }
                // It stays until the probe has room for another one.
                Some(gone) => gone.may_end(now, scrapes) && cgroups.forget(number).is_ok(),
            }
        });
        for (key, totals) in ended.flat_map(|(_, workload)| workload.usage) {
            *self.ended.entry(key).or_default() += totals.ios();
        }
    }

    /// Adds names to pods and containers. Those that are gone keep theirs.
    fn name_pods(&mut self, names: &PodNames) {
        for workload in self.workloads.values_mut().filter(|workload| workload.may_have_names()) {
            workload.encoded.forget();
            workload.identity = std::mem::take(&mut workload.identity).with_names(names);
        }
    }

    /// Removes what was done on devices that are gone.
    pub(super) fn retain_series(&mut self, is_here: impl Fn(Key) -> bool) {
        for workload in self.workloads.values_mut() {
            let before = workload.usage.len();
            workload.usage.retain(|&key, _| is_here(key));
            if workload.usage.len() < before {
                workload.encoded.forget();
            }
        }
        self.ended.retain(|&key, _| is_here(key));
    }

    /// How a workload is shown; empty if it is unknown.
    pub(super) fn path(&self, number: u64) -> &str {
        let number = if self.root == Some(number) { KERNEL } else { number };
        self.workloads.get(&number).map_or("", |workload| shown_path(number, workload.cgroup.as_ref()))
    }

    /// I/Os of workloads that are not shown any more.
    pub(super) fn ended(&self, series: Key) -> u64 {
        self.ended.get(&series).copied().unwrap_or_default()
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
            cgroup: shown_path(number, workload.cgroup.as_ref()).to_owned(),
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

/// The path that a workload is shown with.
fn shown_path(number: u64, cgroup: Option<&SeenCgroup>) -> &str {
    let without = if number == OTHER { OTHER_NAME } else { "/" };
    cgroup.map_or(without, |cgroup| cgroup.path.as_str())
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
        let Some(maps) = &self.probe.workloads else { return Ok(()) };
        if !maps.is_taken() {
            // What a collection that failed, or the last daemon, has left. The next daemon has to know that it was taken before its
            // table is used again.
            self.take_workloads()?;
            self.commit();
        }
        if let Some(maps) = &mut self.probe.workloads {
            maps.begin_epoch()?;
        }
        self.take_workloads()?;
        self.read_pod_names();
        Ok(())
    }

    /// Adds what was counted in the last epoch, if it has not been taken yet.
    pub(super) fn take_workloads(&mut self) -> Result<()> {
        let Some(maps) = &mut self.probe.workloads else { return Ok(()) };
        let counts = maps.take()?;
        self.reference.add(&counts);
        self.workloads.add(&counts, Instant::now(), self.scrapes.count(), &mut self.probe);
        Ok(())
    }

    /// Reads the names of pods for the first I/O of one, and now and then, as the kubelet may make its links later.
    fn read_pod_names(&mut self) {
        let is_due = self.pod_names_read.is_none_or(|read| read.elapsed() >= POD_NAMES_INTERVAL);
        if !self.workloads.has_unnamed && !is_due {
            return;
        }
        self.pod_names_read = Some(Instant::now());
        let directory = self.host.container_logs.clone();
        // Without the directory, this is no node of Kubernetes.
        if let Some(Ok(names)) = self.sysfs.read(move || PodNames::read(&directory)) {
            self.workloads.name_pods(&names);
        }
        self.workloads.has_unnamed = false;
    }
}
