//! The store, with a kernel that knows some cgroups.

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

use super::{
    super::workload_totals::WorkloadTotals, Cgroups, SHOWN_AFTER_END, SHOWN_WITHOUT_SCRAPE, WorkloadStore,
};
use crate::{cgroup::PodNames, probe::SeenCgroup, snapshot::WorkloadView};

const ROOT: u64 = 1;

/// The cgroups that the probe has recorded, and those that are gone.
#[derive(Default)]
struct FakeKernel {
    paths: BTreeMap<u64, String>,
    gone: BTreeSet<u64>,
    forgotten: Vec<u64>,
}

impl FakeKernel {
    fn with(paths: &[(u64, &str)]) -> Self {
        let paths = paths.iter().map(|&(number, path)| (number, path.to_owned())).collect();
        Self { paths, ..Self::default() }
    }
}

impl Cgroups for FakeKernel {
    fn cgroup(&self, workload: u64) -> Result<Option<SeenCgroup>> {
        Ok(self.paths.get(&workload).map(|path| SeenCgroup::of_path(path)))
    }

    fn forget(&mut self, workload: u64) -> Result<()> {
        self.forgotten.push(workload);
        Ok(())
    }

    fn exists(&self, workload: u64, _: &SeenCgroup) -> Result<bool> {
        Ok(!self.gone.contains(&workload))
    }
}

const SERIES: Key = Key::new(7, 0);

/// Adds so many I/Os of each workload, on one device, while nobody scrapes.
fn add(store: &mut WorkloadStore, ios: &[(u64, u32)], now: Instant, kernel: &mut FakeKernel) {
    add_after(0, store, ios, now, kernel);
}

/// The same after so many scrapes.
fn add_after(
    scrapes: u64,
    store: &mut WorkloadStore,
    ios: &[(u64, u32)],
    now: Instant,
    kernel: &mut FakeKernel,
) {
    let entries = ios.iter().map(|&(workload, count)| {
        let mut entry = Entry { bytes: u64::from(count) * 512, ..Entry::ZERO };
        entry.cells[20] = count;
        ((SERIES, workload), entry)
    });
    store.add(&entries.collect(), now, scrapes, kernel);
}

fn views(store: &WorkloadStore) -> Vec<WorkloadView> {
    store.views(&[], SystemTime::UNIX_EPOCH, |_| Some("sda"), |_| "read".to_owned())
}

/// Each workload's path, and its I/Os.
fn ios(store: &WorkloadStore) -> Vec<(String, u64)> {
    let views = views(store).into_iter();
    views.map(|view| (view.cgroup, view.usage.iter().map(|usage| usage.latency.count()).sum())).collect()
}

fn expected(ios: &[(&str, u64)]) -> Vec<(String, u64)> {
    ios.iter().map(|&(path, count)| (path.to_owned(), count)).collect()
}

#[test]
fn the_root_cgroup_and_unknown_ones_have_kinds() {
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
fn a_cgroup_with_the_path_of_a_former_one_continues_it() {
    let mut kernel = FakeKernel::with(&[(5, "/a.service"), (6, "/a.service")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let now = Instant::now();
    add(&mut store, &[(5, 4)], now, &mut kernel);
    let since = views(&store)[0].since;
    add(&mut store, &[(6, 1)], now, &mut kernel);
    // The former one still writes something back.
    add(&mut store, &[(5, 2), (6, 1)], now, &mut kernel);
    assert_eq!(ios(&store), expected(&[("/a.service", 8)]));
    assert_eq!(views(&store)[0].since, since);
    assert!(kernel.forgotten.contains(&5));
}

#[test]
fn a_cgroup_that_is_gone_is_shown_for_a_while() {
    let mut kernel = FakeKernel::with(&[(5, "/a.service"), (6, "/b.service")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    add(&mut store, &[(5, 4), (6, 1)], start, &mut kernel);
    kernel.gone.insert(5);
    let later = start + Duration::from_secs(5);
    add(&mut store, &[(6, 1)], later, &mut kernel);
    assert_eq!(views(&store).iter().map(|view| view.is_gone).collect::<Vec<_>>(), [true, false]);
    assert!(kernel.forgotten.is_empty(), "its place is not free yet");
    add(&mut store, &[], later + SHOWN_AFTER_END - Duration::from_secs(1), &mut kernel);
    assert_eq!(ios(&store).len(), 2);
    add(&mut store, &[], later + SHOWN_AFTER_END, &mut kernel);
    assert_eq!(ios(&store), expected(&[("/b.service", 2)]));
    assert_eq!(store.ended(SERIES), 4, "its I/Os are not forgotten");
    assert!(kernel.forgotten.contains(&5));
    store.retain_series(|_| false);
    assert_eq!(store.ended(SERIES), 0);
}

/// The last counts are for one more scrape, but not if none comes for an hour.
#[test]
fn a_cgroup_that_is_gone_waits_for_a_scrape() {
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
fn a_renamed_cgroup_has_its_new_path_soon() {
    let mut kernel = FakeKernel::with(&[(5, "/old")]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    let start = Instant::now();
    add(&mut store, &[(5, 4)], start, &mut kernel);
    kernel.paths.insert(5, "/new.service".to_owned());
    add(&mut store, &[(5, 1)], start + Duration::from_secs(11), &mut kernel);
    assert_eq!(ios(&store), expected(&[("/new.service", 5)]));
    assert_eq!(views(&store)[0].identity.unit, "new.service");
}

#[test]
fn series_that_are_not_counted_by_workload_are_others() {
    let mut kernel = FakeKernel::default();
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    add(&mut store, &[(KERNEL, 1)], Instant::now(), &mut kernel);
    let beyond = [(Key::new(8, 0), WorkloadTotals { bytes: 77, ..WorkloadTotals::default() })];
    let views = store.views(&beyond, SystemTime::UNIX_EPOCH, |_| Some("sda"), |_| "read".to_owned());
    assert_eq!(views[1].cgroup, "other");
    assert_eq!(views[1].usage[0].bytes, 77);
}

#[test]
fn pods_get_their_names_when_they_are_known() {
    let id = "0123456789abcdef".repeat(4);
    let path = format!("/kubepods.slice/cri-containerd-{id}.scope");
    let mut kernel = FakeKernel::with(&[(5, &path)]);
    let mut store = WorkloadStore::new(SystemTime::UNIX_EPOCH);
    add(&mut store, &[(5, 4)], Instant::now(), &mut kernel);
    assert!(store.has_unnamed);
    assert!(PodNames::read(Path::new("/does/not/exist")).is_err());
    store.name_pods(&PodNames::from_file_names([format!("web-0_shop_nginx-{id}.log")].iter()));
    let identity = &views(&store)[0].identity;
    assert_eq!([&identity.namespace, &identity.pod, &identity.container], ["shop", "web-0", "nginx"]);
    // A container that is gone keeps its names.
    store.name_pods(&PodNames::default());
    assert_eq!(views(&store)[0].identity.pod, "web-0");
}
