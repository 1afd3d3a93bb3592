//! Surprise removal and insertion of NVMe drives, and NVMe multipath.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use crate::support::{
    block,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    emulator::Emulator,
    figures::Figures,
    http,
    inflight::{Shown, wait_until_clear},
    load::{StopFlag, Target},
    settled::{Moment, compare, settled},
};

/// A hot-plug PCI Express slot with a power controller, and the NVMe controller in it.
struct PcieSlot {
    controller: PathBuf,
}

impl PcieSlot {
    /// Returns a drive's slot.
    fn of(device: &str) -> Self {
        Self { controller: fs::canonicalize(format!("/sys/block/{device}/device/device")).unwrap() }
    }

    /// Returns the offset of the slot control register in the PCI Express capability.
    fn control_offset(configuration: &fs::File) -> u64 {
        let byte = |at: u64| {
            let mut byte = [0];
            configuration.read_exact_at(&mut byte, at).unwrap();
            u64::from(byte[0])
        };
        let mut at = byte(0x34);
        while byte(at) != 0x10 {
            at = byte(at + 1);
            assert_ne!(at, 0, "the slot has no PCI Express capability");
        }
        at + 0x18
    }

    /// Surprise-removes the drive with requests in flight.
    fn remove_drive(&self) {
        let slot = self.controller.parent().unwrap();
        let configuration = OpenOptions::new().read(true).write(true).open(slot.join("config")).unwrap();
        let at = Self::control_offset(&configuration);
        let mut control = [0; 2];
        configuration.read_exact_at(&mut control, at).unwrap();
        // Power off, and the power indicator off.
        control[1] |= 0x07;
        configuration.write_all_at(&control, at).unwrap();
        // The emulator sends no hot-plug event for a surprise removal; this makes the kernel notice that the drive is gone.
        fs::write(self.controller.join("remove"), "1").unwrap();
    }
}

/// Reads and writes until the drive fails. Returns the number of failed calls.
fn load_until_it_fails(device: &str, stop: &StopFlag) -> u64 {
    let failed = AtomicU64::new(0);
    thread::scope(|scope| {
        for worker in 0..12_u64 {
            let failed = &failed;
            scope.spawn(move || {
                let target = Target::open(&block::path(device));
                for number in (0..).take_while(|_| !stop.is_set()) {
                    let place = (worker << 24) + (number % 1000) * 4096;
                    let done = if worker % 2 == 0 {
                        target.try_read_at(place, 4096)
                    } else {
                        target.try_write_at(place, 4096)
                    };
                    if done.is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            });
        }
    });
    failed.into_inner()
}

/// Waits until every worker has a request in flight and the next completion is some time away.
fn wait_until_all_in_flight(device: &str) {
    let completions = || Stat::of(device).all_completions();
    let mut last = completions();
    wait_for("a completion", || {
        thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, completions()) + 1 == last && Stat::of(device).in_flight() == 12
    });
    thread::sleep(Duration::from_millis(300));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn drive_replaced_under_load() {
    let mut emulator = Emulator::connect();
    let name = block::device_with("device/serial", "first");
    let slot = PcieSlot::of(&name);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nvme.*"]);
    let address = daemon.address;
    let info = [("device", name.as_str())];
    let before = settled(&daemon, &name);
    assert_eq!(before.figures.label("biolat_device_info", &info, "serial").unwrap(), "first");

    emulator.throttle("first", 200);
    let stop = StopFlag::default();
    let (failed, scrapes) = thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        let scraper = scope.spawn(|| {
            let mut scrapes = 0;
            while !stop.is_set() {
                assert_eq!(http::get(address, "/metrics", "").unwrap().status, 200);
                scrapes += 1;
                thread::sleep(Duration::from_millis(50));
            }
            scrapes
        });
        let load = scope.spawn(|| load_until_it_fails(&name, &stop));
        let reads = || Stat::of(&name).completions(READ) - before.diskstats.completions(READ);
        wait_for("some reads", || reads() > 20);
        // Slow enough that all requests are in flight at the removal and none is issued during it: the emulator sometimes crashes
        // on a request that arrives while it is removing the drive.
        emulator.throttle("first", 1);
        wait_until_all_in_flight(&name);
        // The drive still completes a request now and then; the age of the next oldest is exact only after a survey.
        wait_for("the age of the oldest", || {
            let shown = Shown::of(&daemon.fresh(), &name);
            shown.reads + shown.writes > 10 && shown.oldest > 0.3 && shown.exact
        });
        slot.remove_drive();
        let failed = load.join().unwrap();
        wait_for("the series to end", || !Figures::scrape(address).has_device(&name));
        drop(stopper);
        (failed, scraper.join().unwrap())
    });
    println!("{failed} calls failed, {scrapes} scrapes meanwhile");
    assert_eq!(failed, 12);
    let gone = daemon.fresh();
    for phase in ["queue", "device", "total"] {
        assert!(gone.histogram(phase, &name, "read").is_none(), "stale {phase} of {name}");
    }
    for metric in ["biolat_io_bytes_total", "biolat_inflight_ios", "biolat_oldest_inflight_seconds"] {
        assert!(gone.metrics(metric, &info).is_empty(), "stale {metric}");
    }
    assert_eq!(gone.lost("no_room") + gone.lost("unknown_device") + gone.lost("clock"), 0);

    emulator.insert("second", "bay1");
    wait_for("the other drive", || !block::devices_with("device/serial", "second").is_empty());
    let other = block::device_with("device/serial", "second");
    assert_eq!(other, name, "the names must be equal, or stale series of the first drive would go unnoticed");
    wait_for("its figures", || Figures::scrape(address).has_device(&other));
    let info = [("device", other.as_str())];
    let start = settled(&daemon, &other);
    assert_eq!(start.figures.label("biolat_device_info", &info, "serial").unwrap(), "second");
    // The new drive's figures include only its own requests, from the first one on.
    assert_eq!(start.figures.count(&other, READ), start.diskstats.completions(READ));
    let target = Target::open(&block::path(&other));
    target.read(300);
    target.write(200);
    let Moment { diskstats: stat, figures: after } = settled(&daemon, &other);
    assert_eq!(after.count(&other, READ), stat.completions(READ));
    assert_eq!(after.count(&other, WRITE), 200);
    assert_eq!(after.errors(&other, "read", "ioerr"), 0);
    assert_eq!(after.missed(&other), 0);
    // Devices are surveyed in turn, and the emulator is slow.
    wait_until_clear(&daemon, &other);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_multipath_counts_on_paths() {
    // The multipath head is a volume without requests of its own; the paths are hidden disks.
    let disks = block::devices_with("device/serial", "pair");
    let (paths, heads): (Vec<_>, Vec<_>) =
        disks.into_iter().partition(|name| block::attribute(name, "hidden") == "1");
    assert_eq!((paths.len(), heads.len()), (2, 1), "{paths:?} {heads:?}");
    let head = &heads[0];
    fs::write(format!("/sys/block/{head}/device/iopolicy"), "round-robin").unwrap();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nvme.*"]);
    let target = Target::open(&block::path(head));
    let before: Vec<_> = paths.iter().map(|path| settled(&daemon, path)).collect();
    target.read(501);
    target.write(300);
    let mut reads = Vec::new();
    for (path, before) in paths.iter().zip(&before) {
        let after = settled(&daemon, path);
        let growth = compare(path, before, &after);
        assert_eq!(growth.missed, 0);
        reads.push(growth.of(READ));
        let info = [("device", path.as_str())];
        assert_eq!(after.figures.label("biolat_device_info", &info, "path_of").as_ref(), Some(head));
        assert_eq!(after.figures.label("biolat_device_info", &info, "serial").unwrap(), "pair");
        assert!(after.figures.histogram("total", head, "read").is_none(), "the head is no drive");
    }
    println!("{paths:?}: {reads:?} reads");
    assert_eq!(reads.iter().sum::<u64>(), 501);
    assert!(reads.iter().all(|&reads| reads >= 100), "nearly all reads are on one path: {reads:?}");
}
