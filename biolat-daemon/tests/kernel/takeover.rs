//! Replacing the kept probe with one of another version or with other options.

use std::{
    fs,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use crate::{
    kept_probe::{arguments, assert_grown, continued, created, with_load},
    support::{
        Folder,
        awake::Awake,
        bpf::programs,
        daemon::{Daemon, wait_for},
        diskstats::{READ, WRITE},
        fd_store::FdStore,
        figures::Figures,
        load::Target,
        loop_device::LoopDevice,
        settled::{compare_except_recursion, settled},
    },
};

/// Returns how long no probe was counting, according to the log of the daemon that replaced the probe.
fn gap(log: &[String]) -> Duration {
    let line =
        log.iter().find_map(|line| line.split_once("were not counted for ")?.1.split_once(", and are"));
    let (gap, _) = line.unwrap_or_else(|| panic!("{log:#?}"));
    let unit = gap.trim_start_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
    let seconds = match unit {
        "ns" => 1e-9,
        "µs" => 1e-6,
        "ms" => 1e-3,
        _ => 1.0,
    };
    Duration::from_secs_f64(seconds * gap.strip_suffix(unit).unwrap().parse::<f64>().unwrap())
}

/// Returns a probe object of another version: the one in `BIOLAT_TEST_OTHER_OBJECT`, or this build's with a few ignored bytes
/// appended.
fn other_object(folder: &Folder) -> PathBuf {
    if let Some(given) = std::env::var_os("BIOLAT_TEST_OTHER_OBJECT") {
        return given.into();
    }
    let path = folder.0.join("other.bpf.o");
    fs::write(&path, [include_bytes!("../../../biolat-probe/object/biolat.bpf.o"), &[0; 8][..]].concat())
        .unwrap();
    path
}

/// Replaces the probe with one of another version or with other options, and back. Completions in the gap are missed, and none is
/// counted twice; the gap is at most 100 ms, except on emulated CPUs.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn upgrade_and_downgrade() {
    let device = LoopDevice::attach("upgrade", true);
    let name = device.name.as_str();
    let _awake = Awake::all_cpus();
    let rounds = std::env::var("BIOLAT_TEST_UPGRADES").map_or(10, |rounds| rounds.parse().unwrap());
    let longest = std::env::var("BIOLAT_TEST_GAP_MS").map_or(100, |ms| ms.parse().unwrap());
    // Upper bound on the load's I/Os per second, which peak while no probe is counting: on emulated machines, and on hosts.
    let fastest = if longest > 100 { 30_000.0 } else { 300_000.0 };
    let longest = Duration::from_millis(longest);
    let folder = Folder::new("upgrade-object", true);
    let other_object = other_object(&folder);
    for workloads in ["256", "off"] {
        let store = FdStore::new("upgrade-store");
        let base = [&arguments(name)[..], &["--workloads", workloads]].concat();
        let other = [&base[..], &["--slow", "100ms"]].concat();
        let mut daemon = Daemon::start_command(&mut store.command(&base));
        let before = settled(&daemon, name);
        let created_before = created(&before.figures, name);
        let (mut missed, mut done) = (0, 0);
        for round in 0..rounds {
            let (stored, own) = (store.names(), programs());
            let next = || {
                let mut command = store.command(if round % 4 == 0 { &other } else { &base });
                if round % 4 == 2 {
                    command.env("BIOLAT_PROBE_OBJECT", &other_object);
                }
                Daemon::start_command(&mut command)
            };
            let began = Instant::now();
            let last;
            (daemon, last) = with_load(&device, || {
                thread::sleep(Duration::from_millis(300));
                let last = Figures::scrape(daemon.address);
                if round % 3 == 0 {
                    drop(daemon);
                } else {
                    daemon.terminate();
                }
                let daemon = next();
                thread::sleep(Duration::from_millis(300));
                (daemon, last)
            });
            let took = began.elapsed();
            let gap = gap(&daemon.log());
            assert!(gap < longest, "no probe counted for {gap:.1?}");
            assert_grown(name, &last, &Figures::scrape(daemon.address));
            let after = settled(&daemon, name);
            let growth = compare_except_recursion(name, &before, &after);
            assert_eq!(created(&after.figures, name), created_before);
            let (all, all_missed) = (growth.of(READ) + growth.of(WRITE), growth.missed);
            println!(
                "{workloads} workloads: {} missed of {} in {took:.1?}, gap {gap:.1?}, {} lost to recursion",
                all_missed - missed,
                all - done,
                growth.lost("recursion"),
            );
            assert!((all_missed - missed) as f64 <= 20.0 + fastest * gap.as_secs_f64());
            (missed, done) = (all_missed, all);
            wait_for("the old probe to be detached", || programs().is_disjoint(&own));
            assert!(store.names().keys().all(|name| !stored.contains_key(name)) && store.names().len() == 4);
        }
    }
}

/// Another process holds the links of the previous probe. If they are closed soon, the daemon continues from the previous counts;
/// if not, it starts over, because the old probe keeps counting. In both cases nothing is counted twice.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn waits_for_links_held_by_others() {
    let device = LoopDevice::attach("attached", true);
    let name = device.name.as_str();
    let store = FdStore::new("attached-store");
    let _awake = Awake::all_cpus();
    let other = [&arguments(name)[..], &["--slow", "100ms"]].concat();
    let mut daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let before = settled(&daemon, name);
    drop(daemon);
    let links = store.duplicate();
    daemon = with_load(&device, || {
        let closing = thread::spawn(|| {
            thread::sleep(Duration::from_secs(1));
            drop(links);
        });
        let daemon = continued(&store, &other);
        closing.join().unwrap();
        daemon
    });
    assert!(gap(&daemon.log()) < Duration::from_millis(100));
    compare_except_recursion(name, &before, &settled(&daemon, name));
    drop(daemon);
    let links = store.duplicate();
    daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let log = daemon.log();
    assert!(
        log.iter().any(|line| line.contains("another process keeps the previous probe attached")),
        "{log:#?}"
    );
    let between = settled(&daemon, name);
    Target::open(&device.path()).read(70);
    assert_eq!(compare_except_recursion(name, &between, &settled(&daemon, name)).of(READ), 70);
    drop(links);
}
