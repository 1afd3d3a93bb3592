//! Tests the store with a fake kernel that has room for a limited number of cgroup records.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Result;
use biolat_common::{
    series::Key,
    workload::{Entry, KERNEL, OTHER},
};
use biolat_model::{cgroup::PodNames, snapshot::WorkloadView};
use biolat_probe::SeenCgroup;

use super::{
    super::workload_totals::WorkloadTotals,
    Cgroups, WorkloadStore,
    gone::{SHOWN_AFTER_END, SHOWN_WITHOUT_SCRAPE},
};

const ROOT: u64 = 1;

/// The cgroups, and the probe's records of them.
struct FakeKernel {
    paths: BTreeMap<u64, String>,
    gone: BTreeSet<u64>,
    /// Path, and whether the record is stale.
    records: BTreeMap<u64, (String, bool)>,
    room: usize,
}

impl FakeKernel {
    fn with(paths: &[(u64, &str)]) -> Self {
        let paths = paths.iter().map(|&(number, path)| (number, path.to_owned())).collect();
        Self { paths, gone: BTreeSet::new(), records: BTreeMap::new(), room: 100 }
    }

    /// Does what the probe does on a cgroup's first I/O in an epoch. Returns the workload that the I/O is counted for.
    fn first_io(&mut self, number: u64) -> u64 {
        let Some(path) = self.paths.get(&number) else { return number };
        match self.records.get(&number) {
            Some((_, false)) => {}
            None if self.records.len() >= self.room => return OTHER,
            _ => drop(self.records.insert(number, (path.clone(), false))),
        }
        number
    }
}

impl Cgroups for FakeKernel {
    fn room(&self) -> usize {
        self.room
    }

    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>> {
        Ok(self.records.get(&workload).map(|(path, _)| SeenCgroup { css: 0, path: path.clone() }))
    }

    fn mark_stale(&mut self, workload: u64) -> Result<()> {
        self.records.entry(workload).and_modify(|(_, is_stale)| *is_stale = true);
        Ok(())
    }

    fn forget(&mut self, workload: u64) -> Result<()> {
        self.records.remove(&workload);
        Ok(())
    }

    fn exists(&self, workload: u64, _: &SeenCgroup) -> Result<bool> {
        Ok(!self.gone.contains(&workload))
    }
}

const SERIES: Key = Key::new(7, 0);

/// Adds this many I/Os of each workload on one device, without scrapes.
fn add(store: &mut WorkloadStore, ios: &[(u64, u32)], now: Instant, kernel: &mut FakeKernel) {
    add_after(0, store, ios, now, kernel);
}

/// Does the same after this many scrapes.
fn add_after(
    scrapes: u64,
    store: &mut WorkloadStore,
    ios: &[(u64, u32)],
    now: Instant,
    kernel: &mut FakeKernel,
) {
    let mut counts = BTreeMap::new();
    for &(workload, count) in ios {
        let mut entry = Entry { bytes: u64::from(count) * 512, ..Entry::ZERO };
        entry.cells[20] = count;
        counts.entry((SERIES, kernel.first_io(workload))).or_insert(Entry::ZERO).merge(&entry);
    }
    store.add(&counts, now, scrapes, kernel);
}

fn views(store: &WorkloadStore) -> Vec<WorkloadView> {
    store.views(&[], SystemTime::UNIX_EPOCH, |_| Some("sda"), |_| "read".to_owned())
}

/// Returns the path and I/O count of each workload.
fn ios(store: &WorkloadStore) -> Vec<(String, u64)> {
    let views = views(store).into_iter();
    views.map(|view| (view.cgroup, view.usage.iter().map(|usage| usage.latency.count()).sum())).collect()
}

fn expected(ios: &[(&str, u64)]) -> Vec<(String, u64)> {
    ios.iter().map(|&(path, count)| (path.to_owned(), count)).collect()
}

#[test]
fn root_and_unknown_cgroups_have_kinds() {
    let mut kernel = FakeKernel::with(&[(ROOT, "/"), (5, "/a.service")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let now = Instant::now();
    add(&mut store, &[(KERNEL, 1), (ROOT, 2), (5, 4), (OTHER, 8), (99, 16)], now, &mut kernel);
    assert_eq!(ios(&store), expected(&[("/", 3), ("/a.service", 4), ("other", 24)]));
    assert_eq!(
        [ROOT, KERNEL, 5, OTHER, 99].map(|number| store.path(number)),
        ["/", "/", "/a.service", "other", ""]
    );
    let kinds: Vec<_> = views(&store).iter().map(|view| view.identity.kind.name()).collect();
    assert_eq!(kinds, ["root", "service", "other"]);
}

#[test]
fn cgroup_with_same_path_continues_workload() {
    let mut kernel = FakeKernel::with(&[(5, "/a.service"), (6, "/a.service")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let now = Instant::now();
    add(&mut store, &[(5, 4)], now, &mut kernel);
    let since = views(&store)[0].since;
    add(&mut store, &[(6, 1)], now, &mut kernel);
    // The earlier one still writes data back.
    add(&mut store, &[(5, 2), (6, 1)], now, &mut kernel);
    assert_eq!(ios(&store), expected(&[("/a.service", 8)]));
    assert_eq!(views(&store)[0].since, since);
}

#[test]
fn shows_gone_cgroup_for_a_while() {
    let mut kernel = FakeKernel::with(&[(5, "/a.service"), (6, "/b.service")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    add(&mut store, &[(5, 4), (6, 1)], start, &mut kernel);
    kernel.gone.insert(5);
    let later = start + Duration::from_secs(5);
    add(&mut store, &[(6, 1)], later, &mut kernel);
    assert_eq!(views(&store).iter().map(|view| view.is_gone).collect::<Vec<_>>(), [true, false]);
    assert!(kernel.records.contains_key(&5), "its place is not free yet");
    add(&mut store, &[], later + SHOWN_AFTER_END - Duration::from_secs(1), &mut kernel);
    assert_eq!(ios(&store).len(), 2);
    add(&mut store, &[], later + SHOWN_AFTER_END, &mut kernel);
    assert_eq!(ios(&store), expected(&[("/b.service", 2)]));
    assert_eq!(store.ended(SERIES), 4, "its I/Os are still counted");
    assert!(!kernel.records.contains_key(&5));
    store.retain_series(|_| false);
    assert_eq!(store.ended(SERIES), 0);
}

/// The last counts stay for one more scrape, but for at most an hour.
#[test]
fn gone_cgroup_waits_for_a_scrape() {
    for (scraped, shown_for) in [(true, SHOWN_AFTER_END), (false, SHOWN_WITHOUT_SCRAPE)] {
        let mut kernel = FakeKernel::with(&[(5, "/a.service")]);
        let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
        let start = Instant::now();
        add_after(3, &mut store, &[(5, 4)], start, &mut kernel);
        kernel.gone.insert(5);
        add_after(3, &mut store, &[], start, &mut kernel);
        let scrapes = 3 + u64::from(scraped);
        add_after(scrapes, &mut store, &[], start + shown_for - Duration::from_secs(1), &mut kernel);
        assert_eq!(ios(&store), expected(&[("/a.service", 4)]));
        add_after(scrapes, &mut store, &[], start + shown_for, &mut kernel);
        assert_eq!(ios(&store), []);
    }
}

#[test]
fn renamed_cgroup_gets_its_new_path() {
    let mut kernel = FakeKernel::with(&[(5, "/old")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    add(&mut store, &[(5, 4)], start, &mut kernel);
    kernel.paths.insert(5, "/new.service".to_owned());
    add(&mut store, &[(5, 1)], start + Duration::from_secs(11), &mut kernel);
    assert_eq!(ios(&store), expected(&[("/old", 5)]), "the probe records it at its next I/O");
    add(&mut store, &[(5, 1)], start + Duration::from_secs(12), &mut kernel);
    add(&mut store, &[], start + Duration::from_secs(22), &mut kernel);
    assert_eq!(ios(&store), expected(&[("/new.service", 6)]));
    assert_eq!(views(&store)[0].identity.unit, "new.service");
}

/// New cgroups never take the room of a live workload, however often its path is read again.
#[test]
fn live_workload_keeps_its_room() {
    let mut kernel = FakeKernel::with(&[(5, "/db.service")]);
    kernel.room = 16;
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    let mut seen = 0;
    for second in 0..120 {
        // Three jobs per second with one I/O each, followed every other second by I/Os of the workload.
        let mut ios: Vec<_> = (0..3).map(|job| (100 + 3 * second + job, 1)).collect();
        for &(job, _) in &ios {
            kernel.paths.insert(job, format!("/job-{job}"));
        }
        if second % 2 == 0 {
            ios.push((5, 2));
            seen += 2;
        }
        add(&mut store, &ios, start + Duration::from_secs(second), &mut kernel);
        kernel.gone.extend(ios.iter().map(|&(number, _)| number).filter(|&number| number != 5));
    }
    let shown = ios(&store);
    assert!(shown.contains(&("/db.service".to_owned(), seen)), "{shown:?}");
    // The jobs that had been gone longest made room for later ones.
    assert_eq!(store.without_room, 0);
    assert_eq!(shown.iter().map(|(_, ios)| ios).sum::<u64>() + store.ended(SERIES), seen + 360);
    assert!(shown.iter().any(|(path, _)| path == "/job-459"), "{shown:?}");
    assert!(store.places_used() <= 16);
    assert_eq!(store.places_used(), kernel.records.len());
}

#[test]
fn counts_io_without_room() {
    let paths: Vec<_> = (1..=6).map(|number| (number + 10, format!("/{number}"))).collect();
    let mut kernel = FakeKernel::with(&[]);
    kernel.paths.extend(paths);
    kernel.room = 4;
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let all: Vec<_> = kernel.paths.keys().map(|&number| (number, 5)).collect();
    add(&mut store, &all, Instant::now(), &mut kernel);
    add(&mut store, &all, Instant::now(), &mut kernel);
    assert_eq!((store.without_room, store.places_used()), (20, 4));
    assert_eq!(ios(&store), expected(&[("/1", 10), ("/2", 10), ("/3", 10), ("/4", 10), ("other", 20)]));
}

/// Cgroups share a recorded path if their names are truncated, or if an earlier one still writes data back. They form one
/// workload.
#[test]
fn live_cgroups_with_same_path_are_one_workload() {
    let mut kernel = FakeKernel::with(&[(5, "/.../job"), (6, "/.../job"), (7, "/.../job")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    for second in 0..60 {
        add(&mut store, &[(5, 1), (6, 1), (7, 1)], start + Duration::from_secs(second), &mut kernel);
    }
    assert_eq!(ios(&store), expected(&[("/.../job", 180)]));
    assert_eq!([5, 6, 7].map(|number| store.path(number)), ["/.../job"; 3]);
    assert_eq!((store.without_room, store.places_used()), (0, 3));

    // The workload is alive as long as any of its cgroups is.
    let later = start + Duration::from_secs(60);
    kernel.gone.extend([6, 7]);
    add(&mut store, &[(5, 1)], later, &mut kernel);
    add(&mut store, &[], later + SHOWN_AFTER_END, &mut kernel);
    assert_eq!(views(&store).iter().map(|view| view.is_gone).collect::<Vec<_>>(), [false]);
    assert_eq!(store.places_used(), kernel.records.len());
    kernel.gone.insert(5);
    for _ in 0..3 {
        add(&mut store, &[], later + 2 * SHOWN_AFTER_END, &mut kernel);
    }
    add(&mut store, &[], later + 3 * SHOWN_AFTER_END, &mut kernel);
    assert_eq!((ios(&store), store.ended(SERIES)), (vec![], 181));
    assert_eq!((store.places_used(), kernel.records.len()), (0, 0));
}

#[test]
fn renamed_alias_becomes_separate_workload() {
    let mut kernel = FakeKernel::with(&[(5, "/a"), (6, "/a")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    add(&mut store, &[(5, 1), (6, 1)], start, &mut kernel);
    kernel.paths.insert(5, "/b".to_owned());
    for second in [11, 12, 22, 23] {
        add(&mut store, &[(5, 1), (6, 1)], start + Duration::from_secs(second), &mut kernel);
    }
    // I/O counted before the new path was read stays with the old path.
    assert_eq!(ios(&store), expected(&[("/a", 9), ("/b", 1)]));
    assert_eq!(store.places_used(), 2);
}

#[test]
fn series_not_counted_by_workload_are_other() {
    let mut kernel = FakeKernel::with(&[]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    add(&mut store, &[(KERNEL, 1)], Instant::now(), &mut kernel);
    let uncounted = [(Key::new(8, 0), WorkloadTotals { bytes: 77, ..WorkloadTotals::default() })];
    let views = store.views(&uncounted, SystemTime::UNIX_EPOCH, |_| Some("sda"), |_| "read".to_owned());
    assert_eq!(views[1].cgroup, "other");
    assert_eq!(views[1].usage[0].bytes, 77);
}

#[test]
fn pods_get_names_once_known() {
    let id = "0123456789abcdef".repeat(4);
    let path = format!("/kubepods.slice/cri-containerd-{id}.scope");
    let mut kernel = FakeKernel::with(&[(5, &path)]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    add(&mut store, &[(5, 4)], Instant::now(), &mut kernel);
    assert!(store.has_unnamed);
    assert!(PodNames::read(Path::new("/does/not/exist")).is_err());
    store.add_pod_names(&PodNames::from_file_names([format!("web-0_shop_nginx-{id}.log")].iter()));
    let identity = &views(&store)[0].identity;
    assert_eq!([&identity.namespace, &identity.pod, &identity.container], ["shop", "web-0", "nginx"]);
    // A container that is gone keeps its names.
    store.add_pod_names(&PodNames::default());
    assert_eq!(views(&store)[0].identity.pod, "web-0");
}
