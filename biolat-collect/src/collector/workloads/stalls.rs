//! The time for which the tasks of workloads were stalled on I/O. It includes waits that come before any request exists, such as
//! the one for `io.max`.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use biolat_model::snapshot::Stalled;

use super::super::state::record::StallsRecord;
use crate::{device::sysfs::attribute, resettable::ResettableCounter};

/// The latest of a workload's `io.pressure`, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stalls {
    pub(super) some: ResettableCounter,
    pub(super) full: ResettableCounter,
    /// Whether its cgroup or one above had a limit in `io.max` when `some` last grew.
    pub(super) has_limit: bool,
}

impl Stalls {
    /// Reads the pressure of the cgroup with this path and, if its tasks were stalled, its limits. The kernel shows both without
    /// waiting for a device. `None` if the cgroup has just been removed.
    pub(super) fn read(before: Option<Self>, root: &Path, path: &str) -> Option<Self> {
        let folder = root.join(path.trim_start_matches('/'));
        let [some, full] = pressure(&folder)?;
        let Some(before) = before else {
            let [some, full] = [some, full].map(ResettableCounter::starting_at);
            return Some(Self { some, full, has_limit: false });
        };
        let mut now = before;
        now.some.update(some);
        now.full.update(full);
        if now.some.growth > before.some.growth {
            now.has_limit = has_limit(root, folder);
        }
        Some(now)
    }

    pub(super) fn view(self) -> Stalled {
        let Self { some, full, has_limit } = self;
        let [some, full] = [some, full].map(|counter| Duration::from_micros(counter.growth));
        Stalled { some, full, has_limit }
    }

    pub(super) const fn to_record(self) -> StallsRecord {
        let Self { some, full, has_limit } = self;
        StallsRecord {
            some_last: some.last,
            some: some.growth,
            full_last: full.last,
            full: full.growth,
            has_limit,
        }
    }

    pub(super) const fn from_record(record: &StallsRecord) -> Self {
        let &StallsRecord { some_last, some, full_last, full, has_limit } = record;
        Self {
            some: ResettableCounter { last: some_last, growth: some },
            full: ResettableCounter { last: full_last, growth: full },
            has_limit,
        }
    }
}

/// Whether the pressure of the host's cgroups can be read below this directory. Only cgroup v2 has this file. In a container's
/// cgroup namespace, the root has a type, and the paths differ from the host's.
pub(super) fn can_be_read(root: &Path) -> bool {
    root.join("cgroup.controllers").exists() && !root.join("cgroup.type").exists()
}

/// Reads the microseconds with some task and with all tasks stalled: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
fn pressure(folder: &Path) -> Option<[u64; 2]> {
    let mut buffer = [0; 256];
    let text = attribute(&folder.join("io.pressure"), &mut buffer).ok()?;
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split_once("total=")?.1.trim().parse().ok()
    };
    Some([total("some ")?, total("full ")?])
}

/// Whether `io.max` of a cgroup or of one above it has a limit. The kernel lists only devices that have one.
fn has_limit(root: &Path, mut folder: PathBuf) -> bool {
    while folder != root {
        if attribute(&folder.join("io.max"), &mut [0; 64]).is_ok_and(|limits| !limits.trim().is_empty()) {
            return true;
        }
        if !folder.pop() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant, SystemTime};

    use biolat_model::snapshot::Stalled;
    use biolat_probe::SeenCgroup;
    use biolat_testing::Tree;

    use super::super::{Workload, WorkloadStore};

    fn pressure(some: u64, full: u64) -> String {
        format!(
            "some avg10=1.00 avg60=0.10 avg300=0.01 total={some}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total={full}\n"
        )
    }

    fn stalled(some: u64, full: u64, has_limit: bool) -> Option<Stalled> {
        let [some, full] = [some, full].map(Duration::from_micros);
        Some(Stalled { some, full, has_limit })
    }

    #[test]
    fn counts_growth_of_pressure() {
        let (tree, mut store) = (Tree::new("stalls", &[]), WorkloadStore::new(SystemTime::now()));
        let cgroup = SeenCgroup { css: 0, path: "/a.slice/b".to_owned() };
        let workload = |cgroup| Workload::new(7, cgroup, SystemTime::now(), Instant::now());
        store.workloads.insert(7, workload(Some(cgroup)));
        store.workloads.insert(0, workload(None));
        let root = tree.0.join("cgroups");
        let mut read = |file: &str, text: &str| {
            tree.write(&format!("cgroups/{file}"), text.as_bytes());
            store.read_stalls(&root);
            assert_eq!(store.workloads[&0].stalls, None, "the root cgroup");
            store.workloads[&7].stalls.map(super::Stalls::view)
        };
        assert_eq!(read("a.slice/b/io.pressure", &pressure(5000, 100)), None, "not cgroup v2");
        assert_eq!(read("cgroup.controllers", "io"), stalled(0, 0, false));
        assert_eq!(read("a.slice/b/io.pressure", &pressure(7000, 300)), stalled(2000, 200, false));
        assert_eq!(
            read("a.slice/io.max", "7:0 rbps=max wbps=max riops=100 wiops=max\n"),
            stalled(2000, 200, false)
        );
        assert_eq!(read("a.slice/b/io.max", ""), stalled(2000, 200, false));
        assert_eq!(read("a.slice/b/io.pressure", &pressure(7001, 300)), stalled(2001, 200, true));
        assert_eq!(read("a.slice/b/io.pressure", ""), stalled(2001, 200, true), "it cannot be read");
        // A restarted service has a new cgroup.
        assert_eq!(read("a.slice/b/io.pressure", &pressure(10, 10)), stalled(2011, 210, true));
        assert_eq!(read("a.slice/io.max", ""), stalled(2011, 210, true));
        assert_eq!(read("a.slice/b/io.pressure", &pressure(20, 10)), stalled(2021, 210, false));
        let kept = store.workloads[&7].to_record(7);
        let kept = Workload::from_record(&kept, Instant::now()).unwrap();
        assert_eq!(kept.stalls, store.workloads[&7].stalls);
    }

    #[test]
    fn container_cannot_see_the_host() {
        let tree = Tree::new("stalls-container", &[]);
        for file in ["cgroup.controllers", "cgroup.type"] {
            tree.write(&format!("cgroups/{file}"), b"");
        }
        tree.write("cgroups/a/io.pressure", pressure(1, 1).as_bytes());
        let mut store = WorkloadStore::new(SystemTime::now());
        let cgroup = SeenCgroup { css: 0, path: "/a".to_owned() };
        store.workloads.insert(7, Workload::new(7, Some(cgroup), SystemTime::now(), Instant::now()));
        store.read_stalls(&tree.0.join("cgroups"));
        assert_eq!(store.workloads[&7].stalls, None);
    }
}
