//! Files that can only be read after the daemon has been recording for a while: another process had them locked, or a drive hung.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use biolat_model::snapshot::Snapshot;

use super::{Daemon, Found, HistoryFile, LIMITS, devices, folder, origin, restarted, started, three_hours};
use crate::{
    SharedHistory,
    tests::host::{TestHost, difference, sums},
};

/// A daemon that does not have its file yet, and its first and last snapshot.
fn without_file(host: &mut TestHost) -> (SharedHistory, [Arc<Snapshot>; 2]) {
    let history = SharedHistory::new(LIMITS, host.boot);
    history.set_awaits_file(true);
    let record = |host: &mut TestHost| {
        let snapshot = host.snapshot();
        history.record(&snapshot, host.boot);
        snapshot
    };
    let first = record(host);
    let mut last = Arc::clone(&first);
    // Long enough for intervals of 10 s.
    for number in 1..=200_u64 {
        host.wait(5.0).io("sdb", "read", number, 0.003).io("sda", "read", 7, 0.001);
        host.workload("/system.slice/new.service", "sdb", number, 0.003);
        host.workload("/system.slice/db.service", "sda", 7, 0.001);
        host.snapshot.workloads.as_mut().unwrap().sort_by(|one, other| one.cgroup.cmp(&other.cgroup));
        if number % 12 == 0 {
            host.slow("sdb", 3.0);
        }
        last = record(host);
    }
    (history, [first, last])
}

fn take_over(history: SharedHistory, path: &Path, boot: &str, host: &TestHost) -> Daemon {
    let mut file = HistoryFile::open(path, origin(boot)).unwrap();
    assert!(file.lock().unwrap());
    let Found { restoring, .. } = file.read(LIMITS).unwrap();
    assert!(history.take_over(restoring, host.boot, host.snapshot.taken) > 100);
    Daemon { history, file }
}

/// Start and end of each interval.
fn times(daemon: &Daemon) -> Vec<(SystemTime, SystemTime)> {
    daemon.periods().iter().map(|period| (period.began, period.ended)).collect()
}

#[test]
fn late_file_with_the_same_counters_has_no_gap() {
    let (_folder, path) = folder();
    let (mut host, mut daemon) = started(&path);
    let [first, _] = three_hours(&mut daemon, &mut host);
    let slow = |daemon: &Daemon| daemon.periods().iter().map(|period| period.slow.len()).sum::<usize>();
    let had_slow = slow(&daemon);
    drop(daemon);
    host.wait(30.0).io("sda", "read", 1000, 0.5);
    let (history, [opened, last]) = without_file(&mut host);
    let own = sums(history.select(opened.taken, last.taken).0.into_periods(None));
    assert_eq!(own, difference(&opened, &last));
    let own_slow: usize =
        history.select(opened.taken, last.taken).0.into_periods(None).map(|period| period.slow.len()).sum();
    let mut daemon = take_over(history, &path, "boot", &host);
    for _ in 0..2 {
        assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
        let recent = daemon.history.select(opened.taken, last.taken).0.into_periods(None);
        assert_eq!(sums(recent), own, "also by workload");
        assert!(times(&daemon).windows(2).all(|pair| pair[0].1 == pair[1].0));
        assert_eq!(slow(&daemon), had_slow + own_slow);
        daemon.file.write(&daemon.history).unwrap();
        drop(daemon);
        daemon = restarted(&path, &host);
    }
    let last = host.wait(5.0).io("sda", "read", 3, 0.001).snapshot();
    daemon.history.record(&last, host.boot);
    assert_eq!(devices(sums(daemon.periods().into_iter())), devices(difference(&first, &last)));
}

#[test]
fn late_file_with_other_counters_or_boot_has_a_gap() {
    for (boot, has_own_counters) in [("boot", true), ("another boot", false), ("another boot", true)] {
        let (_folder, path) = folder();
        let (mut host, mut daemon) = started(&path);
        let [first, last] = three_hours(&mut daemon, &mut host);
        drop(daemon);
        let mut expected = sums(std::iter::empty());
        let mut add = |other: super::Sums| {
            for (key, sum) in other {
                let entry: &mut super::Sum = expected.entry(key).or_default();
                entry.bytes += sum.bytes;
                entry.histograms.iter_mut().zip(&sum.histograms).for_each(|(sum, added)| sum.add(added));
            }
        };
        add(devices(difference(&first, &last)));
        host.wait(30.0);
        if has_own_counters {
            let boot = host.boot;
            let taken = host.snapshot.taken;
            host = TestHost::new(&["sda", "sdb"]);
            (host.boot, host.snapshot.taken, host.snapshot.started) = (boot, taken, taken);
            host.snapshot.devices.iter_mut().for_each(|view| view.since = taken);
        } else {
            host.io("sda", "read", 1000, 0.5);
        }
        let (history, [opened, last]) = without_file(&mut host);
        add(devices(difference(&opened, &last)));
        let daemon = take_over(history, &path, boot, &host);
        assert_eq!(devices(sums(daemon.periods().into_iter())), expected, "{boot} {has_own_counters}");
        let times = times(&daemon);
        let mut gaps = times.windows(2).filter(|pair| pair[0].1 < pair[1].0);
        let gap = gaps.next().unwrap();
        let length = gap[1].0.duration_since(gap[0].1).unwrap();
        assert!(length.abs_diff(Duration::from_secs(30)) < Duration::from_millis(1), "{length:?}");
        assert!(gaps.next().is_none() && times.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    }
}

/// Two daemons ran at the same time, and one of them had the file.
#[test]
fn late_file_does_not_duplicate_intervals() {
    let (_folder, path) = folder();
    let (mut host, mut daemon) = started(&path);
    let first = daemon.collect(&mut host);
    let history = SharedHistory::new(LIMITS, host.boot);
    history.set_awaits_file(true);
    let mut last = first.clone();
    for number in 1..=200_u64 {
        host.wait(5.0).io("sda", "read", number, 0.001);
        last = host.snapshot();
        if number <= 120 {
            daemon.history.record(&last, host.boot);
            daemon.file.write(&daemon.history).unwrap();
        }
        // The counters of this daemon began later.
        let own = Snapshot { started: last.started + Duration::from_secs(60), ..Snapshot::clone(&last) };
        history.record(&Arc::new(own), host.boot);
    }
    drop(daemon);
    let daemon = take_over(history, &path, "boot", &host);
    assert_eq!(sums(daemon.periods().into_iter()), difference(&first, &last));
}
