//! The workloads: the I/O of each cgroup on each device, and its identity. A cgroup that is gone is kept for a while.

mod gone;
mod kept;
mod reading;
mod stalls;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    workload::{KERNEL, OTHER},
};
use biolat_model::{
    cgroup::{Identity, PodNames},
    snapshot::WorkloadView,
};
use biolat_probe::{EpochCounts, SeenCgroup};

use super::{state::encoded::Encoded, workload_totals::WorkloadTotals};
use gone::Gone;
use stalls::{Stalls, can_be_read};

pub(super) use reading::Workloads;

/// Time after which the path of a cgroup is read again, because v1 cgroups can be renamed.
const RENAME_INTERVAL: Duration = Duration::from_secs(10);

/// Name for the cgroups that do not fit, which are shown together.
const OTHER_NAME: &str = "other";

/// All workloads since the probe was attached, by serial number.
pub(super) struct WorkloadStore {
    workloads: BTreeMap<u64, Workload>,
    /// Earlier cgroups with the same path as a workload, by serial number. Their remaining I/O is counted for the workload.
    aliases: BTreeMap<u64, Alias>,
    /// I/Os of workloads that are no longer shown.
    ended: BTreeMap<Key, u64>,
    /// I/Os of cgroups that did not fit.
    without_room: u64,
    /// Serial number of the root cgroup, whose I/Os are counted with the kernel's.
    root: Option<u64>,
    /// Time when the counts were last taken.
    taken: SystemTime,
    logged_other: bool,
    /// Whether there is a pod or container whose names have not been looked up.
    has_unnamed: bool,
}

struct Workload {
    /// `None` for the kernel and for `other`.
    cgroup: Option<SeenCgroup>,
    identity: Identity,
    /// Start time of its counts, which were zero then.
    since: SystemTime,
    /// Time when its path was read.
    path_read: Instant,
    /// Set once it is gone.
    gone: Option<Gone>,
    usage: BTreeMap<Key, WorkloadTotals>,
    /// `None` if the pressure of its cgroup could never be read.
    stalls: Option<Stalls>,
    /// The encoded workload, for the next daemon.
    encoded: Encoded,
}

/// An earlier cgroup with the same recorded path as a workload.
struct Alias {
    workload: u64,
    cgroup: SeenCgroup,
    /// Time when its path was read.
    path_read: Instant,
}

impl Workload {
    fn new(number: u64, cgroup: Option<SeenCgroup>, since: SystemTime, now: Instant) -> Self {
        let identity = Identity::of_path(shown_path(number, cgroup.as_ref()));
        let (usage, encoded) = (BTreeMap::new(), Encoded::default());
        Self { cgroup, identity, since, path_read: now, gone: None, usage, stalls: None, encoded }
    }

    /// Whether it is a pod or a container that has an id but no names yet.
    fn may_have_names(&self) -> bool {
        self.identity.pod.is_empty()
            && !(self.identity.pod_uid.is_empty() && self.identity.container_id.is_empty())
    }

    fn path(&self) -> Option<&str> {
        self.cgroup.as_ref().map(|cgroup| cgroup.path.as_str())
    }
}

/// The kernel's cgroups, as far as the store needs them.
pub(super) trait Cgroups {
    /// Returns how many cgroups the probe can record.
    fn room(&self) -> usize;
    /// Returns the cgroup with this serial number, if the probe has recorded it.
    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>>;
    /// Makes the probe record the cgroup again on its next I/O. Until then the old record stays and keeps its place.
    fn mark_stale(&mut self, workload: u64) -> Result<()>;
    /// Removes the record of a cgroup that is gone, which makes room for another one.
    fn forget(&mut self, workload: u64) -> Result<()>;
    /// Whether the cgroup still exists.
    fn exists(&self, workload: u64, cgroup: &SeenCgroup) -> Result<bool>;
}

impl WorkloadStore {
    /// Creates a store for a probe that was attached at this time.
    pub(super) fn new(started: SystemTime) -> Self {
        Self {
            workloads: BTreeMap::new(),
            aliases: BTreeMap::new(),
            ended: BTreeMap::new(),
            without_room: 0,
            root: None,
            taken: started,
            logged_other: false,
            has_unnamed: false,
        }
    }

    /// Adds the counts of an epoch. `scrapes` is the number of scrapes so far. Counts of an unknown cgroup are added to `other`.
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
            active.insert(number);
            let number = self.resolve(number, since, now, cgroups);
            active.insert(number);
            let workload =
                self.workloads.entry(number).or_insert_with(|| Workload::new(number, None, since, now));
            workload.encoded.forget();
            workload.gone = None;
            let totals = workload.usage.entry(key).or_default();
            let before = totals.ios();
            totals.add(entry);
            if number == OTHER {
                self.without_room += totals.ios() - before;
            }
        }
        if active.contains(&OTHER) && !std::mem::replace(&mut self.logged_other, true) {
            log::warn!(
                "no room for every cgroup: {} are counted separately, I/O of the rest as {OTHER_NAME}; raise --workloads",
                cgroups.room()
            );
        }
        self.refresh_paths(now, cgroups);
        self.end_gone(&active, now, scrapes, cgroups);
    }

    /// Reads the pressure of the workloads that exist, below this mount point of the cgroups.
    pub(super) fn read_stalls(&mut self, root: &Path) {
        if !can_be_read(root) {
            return;
        }
        for workload in self.workloads.values_mut().filter(|workload| workload.gone.is_none()) {
            let Some(now) = workload.path().and_then(|path| Stalls::read(workload.stalls, root, path)) else {
                continue;
            };
            if workload.stalls.replace(now) != Some(now) {
                workload.encoded.forget();
            }
        }
    }

    /// Counts I/Os of series that are not counted by workload.
    pub(super) fn add_without_room(&mut self, ios: u64) {
        self.without_room += ios;
    }

    /// Returns the number under which a cgroup's workload is stored.
    fn resolve(&mut self, number: u64, since: SystemTime, now: Instant, cgroups: &impl Cgroups) -> u64 {
        if number == KERNEL || number == OTHER || self.workloads.contains_key(&number) {
            return number;
        }
        if self.root == Some(number) {
            return KERNEL;
        }
        if let Some(alias) = self.aliases.get(&number) {
            return alias.workload;
        }
        match cgroups.cgroup(number) {
            Ok(Some(cgroup)) if cgroup.path == "/" => {
                self.root = Some(number);
                KERNEL
            }
            Ok(Some(cgroup)) => {
                self.insert(number, cgroup, since, now);
                number
            }
            _ => OTHER,
        }
    }

    fn insert(&mut self, number: u64, cgroup: SeenCgroup, since: SystemTime, now: Instant) {
        let workload = Workload::new(number, Some(cgroup), since, now);
        self.has_unnamed |= workload.may_have_names();
        self.workloads.insert(number, workload);
        self.merge_same_path(number, now);
    }

    /// Lets a cgroup continue the counts of an earlier one with the same recorded path, for example after a service restart. The
    /// earlier cgroup may still write data back, or may be a different one with the same truncated path, so it becomes an alias.
    fn merge_same_path(&mut self, number: u64, now: Instant) {
        let Some(path) = self.workloads.get(&number).and_then(Workload::path).map(str::to_owned) else {
            return;
        };
        let has_same_path =
            |&other: &u64, workload: &mut Workload| other != number && workload.path() == Some(&path);
        let earlier: Vec<_> = self.workloads.extract_if(.., has_same_path).collect();
        let Some(workload) = self.workloads.get_mut(&number) else { return };
        workload.encoded.forget();
        for (earlier, Workload { cgroup, since, usage, stalls, .. }) in earlier {
            for alias in self.aliases.values_mut().filter(|alias| alias.workload == earlier) {
                alias.workload = number;
            }
            if let Some(cgroup) = cgroup {
                self.aliases.insert(earlier, Alias { workload: number, cgroup, path_read: now });
            }
            workload.since = workload.since.min(since);
            // The pressure is read by path, so the latest reading may already be the new cgroup's.
            workload.stalls = workload.stalls.or(stalls);
            for (key, totals) in usage {
                workload.usage.entry(key).or_default().add_totals(&totals);
            }
        }
    }

    /// Rereads paths that were last read some time ago.
    fn refresh_paths(&mut self, now: Instant, cgroups: &mut impl Cgroups) {
        let is_due = |path_read: &mut Instant| {
            let is_due = now.duration_since(*path_read) >= RENAME_INTERVAL;
            if is_due {
                *path_read = now;
            }
            is_due
        };
        let mut renamed = Vec::new();
        for (&number, workload) in &mut self.workloads {
            let Some(cgroup) = &workload.cgroup else { continue };
            if workload.gone.is_some() || !is_due(&mut workload.path_read) {
                continue;
            }
            if let Some(recorded) = refresh(number, cgroups)
                && cgroup.path != recorded.path
            {
                renamed.push(number);
                workload.encoded.forget();
                workload.identity = Identity::of_path(&recorded.path);
                self.has_unnamed |= workload.may_have_names();
                workload.cgroup = Some(recorded);
            }
        }
        for number in renamed {
            self.merge_same_path(number, now);
        }
        let mut separate = Vec::new();
        self.aliases.retain(|&number, alias| {
            if !is_due(&mut alias.path_read) {
                return true;
            }
            let path = self.workloads.get(&alias.workload).and_then(Workload::path);
            match refresh(number, cgroups).filter(|recorded| Some(recorded.path.as_str()) != path) {
                Some(renamed) => {
                    separate.push((number, renamed));
                    false
                }
                None => true,
            }
        });
        for (number, cgroup) in separate {
            self.insert(number, cgroup, self.taken, now);
        }
    }

    /// Adds names to pods and containers. Pods and containers that are gone keep their names.
    fn add_pod_names(&mut self, names: &PodNames) {
        for workload in self.workloads.values_mut().filter(|workload| workload.may_have_names()) {
            workload.encoded.forget();
            workload.identity = std::mem::take(&mut workload.identity).with_names(names);
        }
    }

    /// Removes I/O on devices that are gone.
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

    /// Returns the path under which a workload is shown; empty if it is unknown.
    pub(super) fn path(&self, number: u64) -> &str {
        let number = match self.aliases.get(&number) {
            Some(alias) => alias.workload,
            None if self.root == Some(number) => KERNEL,
            None => number,
        };
        self.workloads.get(&number).map_or("", |workload| shown_path(number, workload.cgroup.as_ref()))
    }

    /// Returns the I/Os of workloads that are no longer shown.
    pub(super) fn ended(&self, series: Key) -> u64 {
        self.ended.get(&series).copied().unwrap_or_default()
    }

    /// Returns all workloads with their I/O on devices that have a name. `uncounted` are series that are not counted by workload;
    /// their I/O is attributed to `other`.
    pub(super) fn views<'a>(
        &self,
        uncounted: &[(Key, WorkloadTotals)],
        started: SystemTime,
        device: impl Fn(u64) -> Option<&'a str>,
        op: impl Fn(u32) -> String,
    ) -> Vec<WorkloadView> {
        let view = |key: Key, totals: &WorkloadTotals| Some(totals.view(device(key.device())?, op(key.op())));
        let views = self.workloads.iter().map(|(&number, workload)| {
            let cgroup = shown_path(number, workload.cgroup.as_ref());
            WorkloadView {
                is_gone: workload.gone.is_some(),
                usage: workload.usage.iter().filter_map(|(&key, totals)| view(key, totals)).collect(),
                stalled: workload.stalls.map(Stalls::view),
                ..WorkloadView::new(cgroup, &workload.identity, workload.since)
            }
        });
        let mut views: Vec<_> = views.collect();
        let uncounted: Vec<_> = uncounted.iter().filter_map(|(key, totals)| view(*key, totals)).collect();
        match views.iter_mut().find(|view| view.cgroup == OTHER_NAME) {
            Some(other) => other.usage.extend(uncounted),
            None => views.push(WorkloadView {
                usage: uncounted,
                ..WorkloadView::new(OTHER_NAME, &Identity::default(), started)
            }),
        }
        views.retain(|view| !view.usage.is_empty());
        views.sort_by(|a, b| a.cgroup.cmp(&b.cgroup));
        views
    }
}

/// Returns the path under which a workload is shown.
fn shown_path(number: u64, cgroup: Option<&SeenCgroup>) -> &str {
    let without = if number == OTHER { OTHER_NAME } else { "/" };
    cgroup.map_or(without, |cgroup| cgroup.path.as_str())
}

/// Returns the latest record of a cgroup and marks it to be recorded again. An error is harmless, because the next attempt
/// follows in a few seconds.
fn refresh(number: u64, cgroups: &mut impl Cgroups) -> Option<SeenCgroup> {
    let recorded = cgroups.cgroup(number).ok()??;
    let _ = cgroups.mark_stale(number);
    Some(recorded)
}
