//! A daemon that continues the previous daemon's counts with the kept probe.

use std::{
    collections::BTreeMap,
    fs::File,
    os::unix::fs::FileExt as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::support::{
    Folder,
    awake::Awake,
    bpf::programs,
    daemon::{Daemon, wait_for},
    diskstats::{READ, WRITE},
    fd_store::FdStore,
    figures::Figures,
    kernel::{self, Ability},
    load::{StopFlag, Target},
    loop_device::LoopDevice,
    run,
    settled::{compare_except_recursion, settled},
    slow_log::slow_ios,
};

/// A pseudo-random generator with a fixed seed.
pub(crate) struct Random(u64);

impl Default for Random {
    fn default() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }
}

impl Random {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

const INTERVAL: [&str; 2] = ["--interval", "100ms"];

pub(crate) fn arguments(device: &str) -> [&str; 4] {
    [INTERVAL[0], INTERVAL[1], "--device", device]
}

/// Asserts that no counter of a device has decreased.
pub(crate) fn assert_grown(device: &str, before: &Figures, after: &Figures) {
    for group in [READ, WRITE] {
        let (before, after) = (before.count(device, group), after.count(device, group));
        assert!(after >= before, "{} of {device}: {before}, then {after}", group.name);
    }
    assert!(after.bytes(device, READ) >= before.bytes(device, READ));
    assert!(after.missed(device) >= before.missed(device));
    // Every scrape already checks that the workloads add up to the device.
    for cgroup in before.cgroups(device, "read") {
        let reads = |figures: &Figures| figures.workload_ios(device, "read", &cgroup);
        assert!(reads(after) >= reads(before), "of {cgroup}");
    }
}

pub(crate) fn created(figures: &Figures, device: &str) -> BTreeMap<String, String> {
    let created = |op: &str| {
        let histogram = figures.histogram("total", device, op).unwrap();
        format!("{:?}", histogram.start_timestamp.as_ref().unwrap())
    };
    ["read", "write"].into_iter().map(|op| (op.to_owned(), created(op))).collect()
}

/// Starts a daemon that resumes the previous daemon's counters.
pub(crate) fn continued(store: &FdStore, arguments: &[&str]) -> Daemon {
    let daemon = Daemon::start_command(&mut store.command(arguments));
    let continues = daemon.log().iter().any(|line| line.contains("resumed the previous daemon's counters"));
    assert!(continues, "{:#?}", daemon.log());
    daemon
}

/// Reads and writes while `run` runs.
pub(crate) fn with_load<T>(device: &LoopDevice, run: impl FnOnce() -> T) -> T {
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| {
            let target = Target::open(&device.path());
            while !stop.is_set() {
                target.read(50);
                target.write(20);
            }
        });
        run()
    })
}

/// Kills a daemon at a random moment under load and starts the next one. No scraped counter decreases.
pub(crate) fn kill_under_load(
    device: &LoopDevice,
    daemon: Daemon,
    random: &mut Random,
    start_next: impl FnOnce(&mut Random) -> Daemon,
) -> Daemon {
    let (next, last) = with_load(device, || {
        thread::sleep(Duration::from_micros(random.below(150_000)));
        let last = Figures::scrape(daemon.address);
        thread::sleep(Duration::from_micros(random.below(20_000)));
        // Drop sends SIGKILL.
        drop(daemon);
        (start_next(random), last)
    });
    assert_grown(&device.name, &last, &Figures::scrape(next.address));
    next
}

/// After each restart, counted, missed and lost completions add up to the disk statistics. No scraped counter decreases.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn survives_kills_under_load() {
    let rounds = std::env::var("BIOLAT_TEST_KILLS").map_or(100, |rounds| rounds.parse().unwrap());
    let device = LoopDevice::attach("kept", true);
    let name = device.name.as_str();
    let store = FdStore::new("kept-store");
    let _awake = Awake::all_cpus();
    let mut random = Random::default();
    let mut daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let before = settled(&daemon, name);
    let created_before = created(&before.figures, name);
    let stored = store.names();
    assert_eq!(stored.len(), 4, "{stored:?}");
    let own = programs();
    let (mut reads, mut missed) = (0, 0);
    for _ in 0..rounds {
        daemon = kill_under_load(&device, daemon, &mut random, |random| {
            // Kills some daemons while they are still starting.
            for _ in 0..random.below(3) {
                let mut started = store.command(&arguments(name)).stderr(Stdio::null()).spawn().unwrap();
                thread::sleep(Duration::from_micros(random.below(120_000)));
                started.kill().unwrap();
                started.wait().unwrap();
            }
            continued(&store, &arguments(name))
        });
        let after = settled(&daemon, name);
        let growth = compare_except_recursion(name, &before, &after);
        (reads, missed) = (growth.of(READ), growth.missed);
        assert_eq!(created(&after.figures, name), created_before);
    }
    println!("{reads} reads, {missed} missed");
    assert!(reads > 100 * rounds);
    assert_eq!(programs(), own, "the first daemon's probe was replaced");
    // Maps for more series may have been added.
    assert!(store.names().keys().eq(stored.keys()), "{:?}", store.names());
    store.clear();
    drop(daemon);
    wait_for("the kernel to free the probe", || programs().is_disjoint(&own));
}

/// The daemon is stopped cleanly and stays down for a while.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn misses_nothing_while_no_daemon_runs() {
    let away = std::env::var("BIOLAT_TEST_AWAY").map_or(5, |seconds| seconds.parse().unwrap());
    let device = LoopDevice::attach("away", true);
    let name = device.name.as_str();
    let store = FdStore::new("away-store");
    let _awake = Awake::all_cpus();
    let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let before = settled(&daemon, name);
    let daemon = with_load(&device, || {
        assert_eq!(daemon.terminate().0.code(), Some(0));
        thread::sleep(Duration::from_secs(away));
        continued(&store, &arguments(name))
    });
    let after = settled(&daemon, name);
    compare_except_recursion(name, &before, &after).assert_few_missed();
}

/// An I/O's record is kept for the next daemon as soon as it is read, before the next collection.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn failed_io_between_collections_stays_in_log() {
    // A device on a file system with room for half a megabyte.
    let folder = Folder::new("kept-log", true);
    let path = folder.0.to_str().unwrap().to_owned();
    run("mount", &["-t", "tmpfs", "-o", "size=512k", "tmpfs", &path]);
    let device = LoopDevice::attach_in(folder, false);
    // The device keeps the file open.
    run("umount", &["-l", &path]);
    let name = device.name.as_str();
    let store = FdStore::new("log-store");
    let arguments = ["--interval", "5m", "--device", name];
    let daemon = Daemon::start_command(&mut store.command(&arguments));
    assert!(slow_ios(&daemon, name).is_empty());
    let to = format!("of={}", device.path().display());
    let written =
        Command::new("dd").args(["if=/dev/zero", &to, "bs=65536", "count=9", "oflag=direct"]).output();
    assert!(!written.unwrap().status.success());
    // Records are read once a second.
    thread::sleep(Duration::from_secs(2));
    drop(daemon);
    let daemon = continued(&store, &arguments);
    let records = slow_ios(&daemon, name);
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((records[0].bytes, records[0].op.as_str()), (65536, "write"));
}

/// While no daemon runs, a known device disappears and another appears under the same name.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn device_replaced_while_no_daemon_runs() {
    if kernel::is_skipped_without(Ability::DiskSequences) {
        return;
    }
    let device = LoopDevice::attach("other", true);
    let name = device.name.as_str();
    let store = FdStore::new("other-store");
    let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let before = settled(&daemon, name);
    assert_eq!(daemon.terminate().0.code(), Some(0));
    Target::open(&device.path()).read(30);
    device.detach();
    device.attach_another("b");
    Target::open(&device.path()).read(70);
    let daemon = continued(&store, &arguments(name));
    let after = settled(&daemon, name);
    assert_eq!(after.figures.count(name, READ), 70);
    assert!(created(&after.figures, name) != created(&before.figures, name));
    assert_eq!(after.figures.lost("unknown_device"), before.figures.lost("unknown_device"));
}

/// If the state is incomplete or was written by another program, the daemon reports it and starts from zero.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn discards_corrupt_state() {
    let device = LoopDevice::attach("broken", true);
    let name = device.name.as_str();
    for (what, change) in [
        (
            "its state is incomplete",
            (|state| state.write_all_at(&[0xff; 64], 0).and(state.write_all_at(&[7; 64], 1 << 30)))
                as fn(&File) -> _,
        ),
        ("its state is incomplete", |state| state.set_len(0)),
    ] {
        let store = FdStore::new("broken-store");
        let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
        Target::open(&device.path()).read(50);
        assert!(daemon.fresh().count(name, READ) >= 50);
        let (stored, own) = (store.names(), programs());
        drop(daemon);
        change(&File::from(store.get("-state"))).unwrap();
        let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
        assert!(daemon.log().iter().any(|line| line.contains(what)), "{:#?}", daemon.log());
        assert_eq!(daemon.fresh().count(name, READ), 0);
        wait_for("the old probe to be detached", || programs().is_disjoint(&own));
        assert!(store.names().keys().all(|name| !stored.contains_key(name)) && store.names().len() == 4);
    }
}

/// A daemon is killed after attaching its new probe, but before it has been kept completely. The previous probe, already
/// detached, still exists: the next daemon resumes its counters and reports the completions since the detach as missed.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn survives_kill_during_upgrade() {
    let device = LoopDevice::attach("middle", true);
    let name = device.name.as_str();
    let store = FdStore::new("middle-store");
    let _awake = Awake::all_cpus();
    let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let before = settled(&daemon, name);
    let (mut first, own) = (store.duplicate(), programs());
    first.retain(|name, _| !name.ends_with("-links"));
    let target = Target::open(&device.path());
    target.read(50);
    drop(daemon);
    target.write(50);
    let other = [&arguments(name)[..], &["--slow", "100ms"]].concat();
    drop(continued(&store, &other));
    target.read(50);
    store.remove("-links");
    store.restore(first);
    target.write(50);
    let daemon = continued(&store, &arguments(name));
    let log = daemon.log();
    assert!(log.iter().any(|line| line.contains("its probe was not kept completely")), "{log:#?}");
    let after = settled(&daemon, name);
    let growth = compare_except_recursion(name, &before, &after);
    assert_eq!((growth.of(READ), growth.of(WRITE)), (100, 100));
    assert!((100..102).contains(&growth.missed), "{} missed", growth.missed);
    wait_for("the first probe to be removed", || programs().is_disjoint(&own));
    assert_eq!(store.names().len(), 4);
}

/// Changes the state to a later format, as a daemon finds it after a downgrade.
fn set_later_format(state: &File) {
    const HEADER: u64 = 32;
    for place in [0, 1 << 30] {
        let mut header = [0; HEADER as usize];
        if state.read_exact_at(&mut header, place).is_err() || header[..8] != *b"biolat\0\x01" {
            continue;
        }
        let mut copy = vec![0; u64::from_le_bytes(header[24..].try_into().unwrap()) as usize];
        state.read_exact_at(&mut copy, place + HEADER).unwrap();
        // The first field is the format version.
        assert_eq!(copy[..2], [8, 2]);
        copy[1] = 99;
        let mut checksum = flate2::Crc::new();
        checksum.update(&header[12..]);
        checksum.update(&copy);
        header[8..12].copy_from_slice(&checksum.sum().to_le_bytes());
        state.write_all_at(&[&header[..], &copy].concat(), place).unwrap();
    }
}

/// A downgrade to a version that does not know the state's format is a reset: counters and their created timestamps start over.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn discards_state_of_later_version() {
    let device = LoopDevice::attach("later", true);
    let name = device.name.as_str();
    let store = FdStore::new("later-store");
    let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    Target::open(&device.path()).read(50);
    let before = daemon.fresh();
    assert!(before.count(name, READ) >= 50);
    let own = programs();
    daemon.terminate();
    set_later_format(&File::from(store.get("-state")));
    let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
    let log = daemon.log();
    assert!(log.iter().any(|line| line.contains("its state has the format of another version")), "{log:#?}");
    let start = settled(&daemon, name);
    assert_eq!(start.figures.count(name, READ), 0);
    assert!(created(&start.figures, name) != created(&before, name));
    wait_for("the old probe to be detached", || programs().is_disjoint(&own));
    Target::open(&device.path()).read(70);
    let end = settled(&daemon, name);
    assert_eq!(compare_except_recursion(name, &start, &end).of(READ), 70);
}

/// Covers options that change what the totals include.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn discards_totals_after_option_change() {
    let device = LoopDevice::attach("options", true);
    let name = device.name.as_str();
    for option in [["--sizes", "off"], ["--workloads", "off"]] {
        let store = FdStore::new("options-store");
        let daemon = Daemon::start_command(&mut store.command(&arguments(name)));
        Target::open(&device.path()).read(50);
        let before = daemon.fresh();
        assert!(before.count(name, READ) >= 50);
        let own = programs();
        drop(daemon);
        let daemon = Daemon::start_command(&mut store.command(&[&arguments(name)[..], &option].concat()));
        let log = daemon.log();
        assert!(log.iter().any(|line| line.contains("counters start at zero: --")), "{log:#?}");
        let after = daemon.fresh();
        assert_eq!(after.count(name, READ), 0);
        assert!(created(&after, name) != created(&before, name));
        wait_for("the old probe to be detached", || programs().is_disjoint(&own));
    }
}

/// With more series than the probe was loaded for, maps that a daemon adds, even at startup, are kept for the next daemon.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn keeps_added_maps() {
    const DEVICES: usize = 45;
    let first = LoopDevice::attach("first", true);
    let store = FdStore::new("maps-store");
    let mut daemon = Daemon::start_command(&mut store.command(&arguments("loop.*")));
    let maps = |store: &FdStore| *store.names().iter().find(|(name, _)| name.ends_with("-maps")).unwrap().1;
    let at_first = maps(&store);
    drop(daemon);
    let devices: Vec<_> =
        (0..DEVICES).map(|number| LoopDevice::attach(&format!("more-{number}"), true)).collect();
    daemon = continued(&store, &arguments("loop.*"));
    wait_for("further maps", || maps(&store) > at_first);
    let all = || devices.iter().chain([&first]);
    // The last devices have their series in the added maps. Comparing all of them would take minutes on emulated CPUs.
    let compared = || devices.iter().rev().take(5).chain([&first]);
    let before: Vec<_> = compared().map(|device| settled(&daemon, &device.name)).collect();
    for _ in 0..3 {
        all().for_each(|device| Target::open(&device.path()).read(10));
        drop(daemon);
        all().for_each(|device| Target::open(&device.path()).write(10));
        daemon = continued(&store, &arguments("loop.*"));
    }
    for (device, before) in compared().zip(&before) {
        let after = settled(&daemon, &device.name);
        let growth = compare_except_recursion(&device.name, before, &after);
        assert_eq!((growth.of(READ), growth.of(WRITE)), (30, 30));
    }
}
