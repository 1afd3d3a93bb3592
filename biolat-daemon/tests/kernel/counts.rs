//! Counts and bytes match the kernel's disk statistics exactly.

use std::{fs, os::unix::fs::FileExt as _, path::Path, thread, time::Duration};

use crate::support::{
    Folder,
    awake::Awake,
    block,
    daemon::Daemon,
    diskstats::{DISCARD, FLUSH, READ, WRITE},
    load::{self, StopFlag, Target, call_fsync},
    loop_device::LoopDevice,
    mount::{self, Mount},
    run,
    settled::{compare, settled},
};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_op_on_a_raw_device_is_exact() {
    let device = LoopDevice::attach("raw", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let awake = Awake::all_cpus();
    let before = settled(&daemon, &device.name);
    load::mixed(&device.path());
    let after = settled(&daemon, &device.name);
    drop(awake);
    let growth = compare(&device.name, &before, &after);
    growth.assert_few_missed();
    // At least as many completions as requested, which proves that the load ran.
    let expected = [(READ, 4000), (WRITE, 2400), (DISCARD, 200), (FLUSH, 20)];
    for (group, at_least) in expected {
        assert!(growth.of(group) >= at_least, "{group:?}: {}", growth.of(group));
    }
    assert_eq!(growth.of(READ), 4000);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn fsync_on_a_filesystem_is_exact() {
    for filesystem in FILESYSTEMS {
        let device = LoopDevice::attach(filesystem, true);
        let _awake = Awake::all_cpus();
        assert_fsync_is_exact(filesystem, &device.name);
    }
}

pub(crate) const FILESYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// Creates a filesystem, writes and syncs, twice.
pub(crate) fn assert_fsync_is_exact(filesystem: &str, device: &str) {
    let path = block::path(device);
    let daemon = Daemon::of(device);
    let before = settled(&daemon, device);
    mount::make(filesystem, &path);
    let folder = Folder::new("mount", true);
    let place = folder.0.to_str().unwrap();
    run("mount", &["-t", filesystem, path.to_str().unwrap(), place]);
    write_and_sync(&folder.0);
    run("umount", &[place]);
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    growth.assert_few_missed();
    assert!(growth.of(WRITE) >= 200 && growth.of(FLUSH) >= 100, "{:?}", growth.completions);
}

fn write_and_sync(folder: &Path) {
    let file = fs::File::create(folder.join("file")).unwrap();
    for number in 0..200_u64 {
        file.write_all_at(&[1; 5000], number * 5000).unwrap();
        file.sync_all().unwrap();
        // There is nothing left to write, so this sends an empty flush.
        file.sync_all().unwrap();
        if number % 10 == 0 {
            fs::write(folder.join(format!("small-{number}")), "x").unwrap();
        }
    }
}

/// On idle CPUs the kernel sometimes does not run the probe; the audit counts how often.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn audit_is_exact_with_idle_cpus() {
    let device = LoopDevice::attach("idle", true);
    assert_audit_is_exact(&device.name, || load::mixed(&device.path()));
}

pub(crate) fn assert_audit_is_exact(device: &str, load: impl FnOnce()) {
    let daemon = Daemon::start(&["--interval", "100ms", "--device", device]);
    let before = settled(&daemon, device);
    load();
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    let all = after.diskstats.all_completions() - before.diskstats.all_completions();
    println!("{device}: {all} completions, {} missed", growth.missed);
    assert!(all >= 4000, "{all} completions");
    growth.assert_few_missed();
}

/// `Figures` checks in every scrape that sizes and bands add up to the totals. Here I/O, including flushes, completes on all
/// CPUs.
#[test]
#[ignore = "needs root and ext4: cargo xtask test"]
fn sizes_add_up_under_load() {
    let device = LoopDevice::attach("sizes", true);
    let mount = Mount::new_ext4(&device.name, &device.path());
    let folder = mount.folder();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| call_fsync(&folder, 8, Duration::ZERO, &stop));
        scope.spawn(|| {
            let target = Target::open(&device.path());
            while !stop.is_set() {
                target.read(100);
            }
        });
        for _ in 0..30 {
            let figures = daemon.fresh();
            assert!(figures.has_device(&device.name));
        }
    });
    let figures = daemon.fresh();
    let counts = [READ, WRITE].map(|op| figures.count(&device.name, op));
    assert!(counts.iter().all(|&count| count > 500), "{counts:?}");
}
