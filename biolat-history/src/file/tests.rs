//! A history that is written to a file and read by the next daemon.

mod changed;
mod late;

use std::{
    fs,
    os::unix::fs::{FileExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_model::{period::Period, snapshot::Snapshot};
use tempfile::TempDir;

use super::{Found, HistoryFile, Origin};
use crate::{
    HistoryLimits, SharedHistory,
    tests::host::{Sum, Sums, TestHost, UPTIME, at, clock, difference, sums},
};

const LIMITS: HistoryLimits = HistoryLimits { age: Duration::from_secs(26 * 3600), bytes: 16 << 20 };

/// A daemon with a history in a file.
struct Daemon {
    history: SharedHistory,
    file: HistoryFile,
}

impl Daemon {
    fn start(path: &Path, boot: &str, since_boot: Duration, now: SystemTime) -> Self {
        Self::with(LIMITS, path, boot, since_boot, now).0
    }

    /// Also returns whether the file was intact, if there was one.
    fn with(
        limits: HistoryLimits,
        path: &Path,
        boot: &str,
        since_boot: Duration,
        now: SystemTime,
    ) -> (Self, Option<bool>) {
        let history = SharedHistory::new(limits, since_boot);
        let mut file = HistoryFile::open(path, origin(boot)).unwrap();
        assert!(file.lock().unwrap());
        let found = file.read(limits);
        let is_whole = found.as_ref().map(|found| found.is_whole);
        if let Some(Found { restoring, .. }) = found {
            history.take_over(restoring, since_boot, now);
        }
        (Self { history, file }, is_whole)
    }

    fn collect(&mut self, host: &mut TestHost) -> Arc<Snapshot> {
        let snapshot = host.snapshot();
        self.history.record(&snapshot, host.boot);
        self.file.write(&self.history).unwrap();
        snapshot
    }

    fn periods(&self) -> Vec<Period> {
        self.history.select(at(0.0), at(4e9)).0.into_periods(None).collect()
    }
}

/// Clears size bands and workloads, which the gap does not have.
fn devices(mut sums: Sums) -> Sums {
    sums.values_mut().for_each(|sum| sum.parts.clear());
    sums
}

/// A host at midnight, and its first daemon.
fn started(path: &Path) -> (TestHost, Daemon) {
    (TestHost::new(&["sda", "sdb"]), Daemon::start(path, "boot", UPTIME, clock(0.0)))
}

fn restarted(path: &Path, host: &TestHost) -> Daemon {
    Daemon::start(path, "boot", host.boot, host.snapshot.taken)
}

fn origin(boot: &str) -> Origin {
    Origin { boot: boot.to_owned(), devices: "all".into() }
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("history");
    (folder, path)
}

/// Records three hours of reads and writes with errors and losses, a slow I/O each minute, and a workload.
fn three_hours(daemon: &mut Daemon, host: &mut TestHost) -> [Arc<Snapshot>; 2] {
    let first = daemon.collect(host);
    let mut last = Arc::clone(&first);
    for number in 1..=2160_u64 {
        host.wait(5.0).io("sda", "read", number, 0.001).io("sdb", "write", 7, 0.02);
        host.workload("/system.slice/db.service", "sda", number, 0.001);
        *host.snapshot.lost.get_mut("clock").unwrap() += 1;
        if number % 12 == 0 {
            host.slow("sda", 2.0);
        }
        last = daemon.collect(host);
    }
    [first, last]
}

#[test]
fn same_counters_leave_no_gap() {
    let (_folder, path) = folder();
    let (mut host, mut daemon) = started(&path);
    let [first, _] = three_hours(&mut daemon, &mut host);
    let before = daemon.periods();
    drop(daemon);
    // I/O between the two daemons.
    host.wait(30.0).io("sda", "read", 1000, 0.5).io("sdb", "write", 1, 0.001);
    *host.snapshot.lost.get_mut("clock").unwrap() += 5;
    let mut daemon = restarted(&path, &host);
    assert_eq!(sums(daemon.periods().into_iter()), sums(before.iter().cloned()));
    let mut last = daemon.collect(&mut host);
    let periods = daemon.periods();
    let gap = periods.last().unwrap();
    assert_eq!((gap.began, gap.length), (before.last().unwrap().ended, Duration::from_secs(30)));
    assert_eq!((gap.collections, gap.devices.len(), &gap.lost), (1, 2, &[("clock".into(), 5)].into()));
    assert_eq!(gap.devices[0].series[0].histograms[3].count(), 1000);
    // Each slow I/O is in one interval only.
    assert!(gap.slow.is_empty());
    assert!(periods.iter().any(|period| period.slow.len() == 1 && period.slow[0].device == "sda"));
    let mut workloads = periods.iter().flat_map(|period| &period.workloads).flatten();
    assert!(workloads.any(|workload| workload.cgroup == "/system.slice/db.service"));
    assert_eq!(devices(sums(periods.into_iter())), devices(difference(&first, &last)));
    // Again, several times in quick succession.
    for _ in 0..3 {
        drop(daemon);
        daemon = restarted(&path, &host);
        host.wait(5.0).io("sda", "write", 3, 0.01);
        last = daemon.collect(&mut host);
        assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
    }
}

/// The counters start over, so it is unknown what was lost in between.
#[test]
fn other_counters_leave_a_gap() {
    for (boot, uptime) in [("boot", 40.0), ("another", 20.0)] {
        let (_folder, path) = folder();
        let mut host = TestHost::new(&["sda", "sdb"]);
        let mut daemon = Daemon::start(&path, "boot", UPTIME, clock(0.0));
        three_hours(&mut daemon, &mut host);
        drop(daemon);
        let (ended, since_boot) = (host.snapshot.taken, host.boot);
        host = TestHost::new(&["sda", "sdb"]);
        host.snapshot.started = ended + Duration::from_secs(35);
        host.snapshot.taken = ended + Duration::from_secs(40);
        let elapsed = Duration::from_secs_f64(uptime);
        host.boot = if boot == "boot" { since_boot + elapsed } else { elapsed };
        let before_it = host.boot - Duration::from_secs(5);
        let mut daemon = Daemon::start(&path, boot, before_it, host.snapshot.started);
        host.io("sda", "read", 9, 0.001);
        daemon.collect(&mut host);
        host.wait(5.0).io("sda", "read", 8, 0.001);
        daemon.collect(&mut host);
        let periods = daemon.periods();
        let [.., had, one, two] = &periods[..] else { panic!("{periods:?}") };
        assert_eq!((had.ended, one.began), (ended, ended + Duration::from_secs(35)), "{boot}");
        assert_eq!(
            (one.ended, two.ended),
            (ended + Duration::from_secs(40), ended + Duration::from_secs(45))
        );
        let reads = |period: &Period| period.devices[0].series[0].histograms[3].count();
        assert_eq!((reads(one), reads(two)), (9, 8));
        assert_eq!(periods.iter().map(reads).sum::<u64>(), (1..=2160).sum::<u64>() + 17);
    }
}

/// Wherever the file is torn, everything before it is read and written again.
#[test]
fn reads_a_torn_file_up_to_the_damage() {
    let (_folder, path) = folder();
    let (mut host, mut daemon) = started(&path);
    daemon.collect(&mut host);
    let mut lengths = Vec::new();
    let (written, other_path) = (path.clone(), path.with_extension("2"));
    for number in 1..=20 {
        host.wait(5.0).io("sda", "read", number, 0.001);
        daemon.collect(&mut host);
        lengths.push(fs::metadata(&written).unwrap().len());
    }
    let count = daemon.periods().len();
    drop(daemon);
    let whole = fs::read(&written).unwrap();
    let (other, now) = (fs::read(&other_path).unwrap(), host.snapshot.taken);
    assert!(other.is_empty());
    for length in lengths[15]..=lengths[19] {
        for change in [false, true] {
            let mut torn = whole[..length as usize].to_vec();
            if change {
                *torn.last_mut().unwrap() ^= 1;
            }
            fs::write(&written, &torn).unwrap();
            fs::write(&other_path, "").unwrap();
            let (mut daemon, is_whole) = Daemon::with(LIMITS, &path, "boot", host.boot, now);
            let ends = lengths.iter().filter(|end| **end <= length - u64::from(change)).count();
            assert_eq!(daemon.periods().len(), count - 20 + ends, "{length}");
            assert_eq!(is_whole, Some(!change && lengths.contains(&length)), "{length}");
            // The next daemon finds it intact.
            let mut next = TestHost::new(&["sda", "sdb"]);
            (next.boot, next.snapshot) = (host.boot + Duration::from_secs(5), host.snapshot.clone());
            daemon.collect(&mut next);
            drop(daemon);
            let (daemon, is_whole) = Daemon::with(LIMITS, &path, "boot", next.boot, now);
            assert_eq!((daemon.periods().len(), is_whole), (count - 20 + ends + 1, Some(true)));
        }
    }
    // Torn within the complete store at the start, with nothing in the other file.
    for length in [0, 7, 23, 24, 30, 100] {
        fs::write(&written, &whole[..length]).unwrap();
        fs::write(&other_path, "").unwrap();
        let (daemon, _) = Daemon::with(LIMITS, &path, "boot", host.boot, now);
        assert_eq!(daemon.periods().len(), 0, "{length}");
    }
}

#[test]
fn files_alternate_and_stay_bounded() {
    let (_folder, path) = folder();
    let limits = HistoryLimits { bytes: 256 << 10, ..LIMITS };
    let mut host = TestHost::new(&["sda", "sdb"]);
    let (mut daemon, _) = Daemon::with(limits, &path, "boot", UPTIME, clock(0.0));
    let paths = [path.clone(), path.with_extension("2")];
    let lengths = || paths.each_ref().map(|path| fs::metadata(path).unwrap().len());
    let (mut turns, mut largest, mut last) = (0, 0, daemon.file.generation);
    for number in 0..20_000 {
        for op in 0..12 {
            host.io("sda", "read", 1 + number % 7, 1e-4 * f64::from(1 << op));
        }
        host.wait(5.0);
        daemon.collect(&mut host);
        if daemon.file.generation != last {
            (last, turns) = (daemon.file.generation, turns + 1);
            // The other file stays valid until this one is complete.
            let had = daemon.periods().len();
            let written = &paths[daemon.file.in_use];
            drop(daemon);
            let whole = fs::read(written).unwrap();
            fs::write(written, &whole[..whole.len() - 1]).unwrap();
            let (half, _) = Daemon::with(limits, &path, "boot", host.boot, host.snapshot.taken);
            assert!(half.periods().len().abs_diff(had) <= 2, "{} {had}", half.periods().len());
            drop(half);
            fs::write(written, &whole).unwrap();
            daemon = Daemon::with(limits, &path, "boot", host.boot, host.snapshot.taken).0;
            daemon.file.write(&daemon.history).unwrap();
        }
        largest = largest.max(lengths().into_iter().max().unwrap());
        if turns > 4 {
            break;
        }
    }
    assert!(turns > 4 && largest < (512 + 1024 + 64) << 10, "{turns} {largest}");
}

/// Never modifies a file that is not biolat's, and never lets two daemons write to one file.
#[test]
fn leaves_foreign_and_locked_files_alone() {
    let (folder, path) = folder();
    let lock =
        |path: &Path| HistoryFile::open(path, origin("boot")).and_then(|file| Ok((file.lock()?, file)));
    let refusal = |path: &Path| format!("{:#}", lock(path).err().unwrap());
    fs::write(&path, "dear diary").unwrap();
    assert!(refusal(&path).ends_with("/history is not a biolat history, and is left unchanged"));
    assert_eq!(fs::read(&path).unwrap(), b"dear diary");
    assert!(refusal(folder.path()).contains("Is a directory"), "{}", refusal(folder.path()));
    assert!(refusal(&path.join("x")).contains("Not a directory"));
    assert!(refusal(&folder.path().join("none/history")).contains("No such file or directory"));
    let link = folder.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(refusal(&link).contains("symbolic links"), "{}", refusal(&link));
    fs::remove_file(&path).unwrap();
    let first = lock(&path).unwrap();
    assert!(first.0 && !lock(&path).unwrap().0);
    drop(first);
    assert!(lock(&path).unwrap().0);
}

/// A file with another format version is started over.
#[test]
fn starts_over_with_an_unknown_format() {
    let (_folder, path) = folder();
    let mut host = TestHost::new(&["sda"]);
    let mut daemon = Daemon::start(&path, "boot", UPTIME, clock(0.0));
    daemon.collect(&mut host);
    daemon.file.files[daemon.file.in_use].write_all_at(&3_u32.to_le_bytes(), 8).unwrap();
    drop(daemon);
    let (mut daemon, is_whole) = Daemon::with(LIMITS, &path, "boot", host.boot, host.snapshot.taken);
    assert_eq!((daemon.periods().len(), is_whole), (0, None));
    host.wait(5.0);
    daemon.collect(&mut host);
}

/// Nothing is missing once writing works again.
#[test]
fn resumes_after_failed_writes() {
    let (_folder, path) = folder();
    let (mut host, mut daemon) = started(&path);
    let [first, _] = three_hours(&mut daemon, &mut host);
    let files = daemon.file.files.each_ref().map(|file| file.try_clone().unwrap());
    for file in &mut daemon.file.files {
        *file = fs::File::open(&path).unwrap();
    }
    let mut last = first.clone();
    for _ in 0..3 {
        last = host.wait(5.0).io("sda", "read", 5, 0.001).snapshot();
        daemon.history.record(&last, host.boot);
        assert!(daemon.file.write(&daemon.history).is_err());
    }
    daemon.file.files = files;
    daemon.file.write(&daemon.history).unwrap();
    drop(daemon);
    let daemon = restarted(&path, &host);
    assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
}

/// Workloads that come and go for days: their names stay in the file and exceed the limit of the whole history.
#[test]
fn drops_unused_names_from_the_file() {
    let (_folder, path) = folder();
    let mut host = TestHost::new(&["sda", "sdb"]);
    let limits = HistoryLimits { age: Duration::from_secs(600), bytes: 256 << 10 };
    let (mut daemon, _) = Daemon::with(limits, &path, "boot", UPTIME, clock(0.0));
    daemon.collect(&mut host);
    for number in 0..400 {
        host.wait(5.0).io("sda", "read", 5, 0.001);
        host.workload(&format!("/jobs/{number}"), "sda", 5, 0.001);
        daemon.collect(&mut host);
        host.snapshot.workloads.as_mut().unwrap().clear();
    }
    assert_eq!(daemon.file.generation, 1);
    let (expected, bytes) = (sums(daemon.periods().into_iter()), daemon.history.bytes());
    drop(daemon);
    assert!(bytes <= limits.bytes);
    for fewer in [limits.bytes, 64 << 10] {
        let limits = HistoryLimits { bytes: fewer, ..limits };
        let (daemon, _) = Daemon::with(limits, &path, "boot", host.boot, host.snapshot.taken);
        let found = sums(daemon.periods().into_iter());
        assert!(!found.is_empty() && daemon.history.bytes() <= fewer);
        assert!(fewer < bytes || devices(found) == devices(expected.clone()));
    }
}

/// The device had I/O before the restart, but not in any interval that is still kept.
#[test]
fn counts_a_long_idle_device_once() {
    let (_folder, path) = folder();
    let mut host = TestHost::new(&["sda", "sdb"]);
    host.io("sdb", "read", 1000, 0.001);
    let limits = HistoryLimits { age: Duration::from_secs(600), bytes: 16 << 20 };
    let (mut daemon, _) = Daemon::with(limits, &path, "boot", UPTIME, clock(0.0));
    daemon.collect(&mut host);
    for _ in 0..400 {
        host.wait(5.0).io("sda", "read", 5, 0.001);
        daemon.collect(&mut host);
    }
    for reads in [70, 0] {
        let before = host.wait(5.0).snapshot();
        daemon.collect(&mut host);
        host.wait(5.0).io("sdb", "read", reads, 0.001);
        daemon.collect(&mut host);
        drop(daemon);
        (daemon, _) = Daemon::with(limits, &path, "boot", host.boot, host.snapshot.taken);
        host.wait(5.0).io("sdb", "read", 7, 0.001);
        let after = daemon.collect(&mut host);
        let added = daemon.history.select(before.taken, after.taken).0.into_periods(None);
        let expected = difference(&before, &after);
        assert_eq!(
            sums(added)[&("sdb".to_owned(), "read".to_owned())],
            expected[&("sdb".to_owned(), "read".to_owned())]
        );
    }
}

/// The counters of devices outside the previous selection are unknown.
#[test]
fn another_device_selection_is_another_origin() {
    let (_folder, path) = folder();
    let mut host = TestHost::new(&["sda", "sdb"]);
    host.io("sdb", "read", 1000, 0.001);
    let all = std::mem::take(&mut host.snapshot.devices);
    host.snapshot.devices = vec![all[0].clone()];
    let mut daemon = Daemon::start(&path, "boot", UPTIME, clock(0.0));
    daemon.file.origin.devices = "sda".into();
    daemon.collect(&mut host);
    host.wait(5.0).io("sda", "read", 5, 0.001);
    daemon.collect(&mut host);
    drop(daemon);
    host.snapshot.devices = all;
    let mut daemon = Daemon::start(&path, "boot", host.wait(60.0).boot, host.snapshot.taken);
    daemon.collect(&mut host);
    host.wait(5.0).io("sdb", "read", 3, 0.001);
    daemon.collect(&mut host);
    let periods = daemon.periods();
    let sdb = sums(periods.iter().cloned())[&("sdb".to_owned(), "read".to_owned())].clone();
    assert_eq!(sdb.histograms[3].count(), 3);
    let [.., had, last] = &periods[..] else { panic!("{periods:?}") };
    assert_eq!(last.began.duration_since(had.ended).unwrap(), Duration::from_secs(60));
}

/// Files were copied over each other, or one is unreadable: the newest intact one is read, and the other one is written next.
#[test]
fn reads_the_newest_intact_file() {
    let (_folder, path) = folder();
    let second = path.with_extension("2");
    let (mut host, mut daemon) = started(&path);
    let [first, last] = three_hours(&mut daemon, &mut host);
    let expected = devices(difference(&first, &last));
    drop(daemon);
    fs::copy(&path, &second).unwrap();
    for (empty, damaged) in [(&path, &second), (&second, &path)] {
        let whole = fs::read(damaged).unwrap();
        fs::write(empty, &whole).unwrap();
        fs::write(damaged, &whole[..100]).unwrap();
        let daemon = restarted(&path, &host);
        assert_eq!(devices(sums(daemon.periods().into_iter())), expected);
        // Everything is written to the damaged one.
        let mut daemon = daemon;
        host.wait(5.0);
        daemon.collect(&mut host);
        drop(daemon);
        let daemon = restarted(&path, &host);
        assert_eq!(devices(sums(daemon.periods().into_iter())), expected);
        drop(daemon);
        fs::copy(damaged, empty).unwrap();
    }
}
