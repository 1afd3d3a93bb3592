//! Counts and bytes, exactly those of the kernel's own books.

use std::{fs, os::unix::fs::FileExt as _, path::Path};

use crate::support::{
    Folder,
    awake::Awake,
    books::{DISCARD, FLUSH, GROUPS, READ, Stat, WRITE},
    daemon::Daemon,
    figures::Figures,
    load,
    loop_device::LoopDevice,
    run,
    settled::settled,
};

/// Losses that the test's device has no part in.
fn lost_here(figures: &Figures) -> u64 {
    figures.all_lost() - figures.lost("passthrough") - figures.lost("no_disk")
}

struct Growth {
    completions: [u64; 4],
    unseen: u64,
}

/// Compares what came between two settled moments; tells what the books grew by.
fn compare(device: &str, (stat, figures): &(Stat, Figures), (stat_after, after): &(Stat, Figures)) -> Growth {
    let unseen = after.unseen(device) - figures.unseen(device);
    let completions = GROUPS.map(|group| {
        let booked = stat_after.completions(group) - stat.completions(group);
        let counted = after.count(device, group) - figures.count(device, group);
        assert!(counted <= booked, "{group:?}: {counted} counted, {booked} booked");
        if let (Some(before), Some(now)) = (stat.bytes(group), stat_after.bytes(group))
            && counted == booked
        {
            let bytes = after.bytes(device, group) - figures.bytes(device, group);
            assert_eq!(bytes, now - before, "bytes of {group:?}");
        }
        assert_eq!(
            booked,
            counted + after_unseen(device, group.ops[0], after) - after_unseen(device, group.ops[0], figures),
            "booked = counted + unseen for {group:?}"
        );
        booked
    });
    assert_eq!(lost_here(after), lost_here(figures), "losses");
    Growth { completions, unseen }
}

fn after_unseen(device: &str, op: &str, figures: &Figures) -> u64 {
    figures.value("biolat_unseen_completions_total", &[("device", device), ("op", op)]) as u64
}

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
    assert_eq!(growth.unseen, 0);
    // What was asked for is at the least what was booked: the test is not empty.
    let expected = [(READ, 4000), (WRITE, 2400), (DISCARD, 200), (FLUSH, 20)];
    for (group, at_least) in expected {
        let index = GROUPS.iter().position(|found| *found == group).unwrap();
        assert!(growth.completions[index] >= at_least, "{group:?}: {}", growth.completions[index]);
    }
    assert_eq!(growth.completions[0], 4000);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn fsync_on_a_filesystem_is_exact() {
    for (filesystem, make) in [("ext4", &["-q", "-F"][..]), ("xfs", &["-q", "-f"])] {
        let device = LoopDevice::attach(filesystem, true);
        let path = device.path();
        let path = path.to_str().unwrap();
        let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
        let awake = Awake::all_cpus();
        let before = settled(&daemon, &device.name);
        run(&format!("mkfs.{filesystem}"), &[make, &[path]].concat());
        let folder = Folder::new("mount", true);
        let place = folder.0.to_str().unwrap();
        run("mount", &[path, place]);
        write_and_sync(&folder.0);
        run("umount", &[place]);
        let after = settled(&daemon, &device.name);
        drop(awake);
        let growth = compare(&device.name, &before, &after);
        assert_eq!(growth.unseen, 0, "{filesystem}");
        assert!(growth.completions[1] >= 200 && growth.completions[3] >= 100, "{:?}", growth.completions);
    }
}

fn write_and_sync(folder: &Path) {
    let file = fs::File::create(folder.join("file")).unwrap();
    for number in 0..200_u64 {
        file.write_all_at(&[1; 5000], number * 5000).unwrap();
        file.sync_all().unwrap();
        // Nothing is left to write: an empty flush.
        file.sync_all().unwrap();
        if number % 10 == 0 {
            fs::write(folder.join(format!("small-{number}")), "x").unwrap();
        }
    }
}

/// On CPUs that idle the kernel now and then does not run the probe: the audit tells how often.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn with_idle_cpus_the_audit_closes_the_books() {
    let device = LoopDevice::attach("idle", true);
    closes_the_books(&device.name, || load::mixed(&device.path()));
}

pub(crate) fn closes_the_books(device: &str, load: impl FnOnce()) {
    let daemon = Daemon::start(&["--interval", "100ms", "--device", device]);
    let before = settled(&daemon, device);
    load();
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    let all = after.0.all_completions() - before.0.all_completions();
    println!("{device}: {all} completions, {} unseen", growth.unseen);
    assert!(all >= 4000, "{all} completions");
    assert!(growth.unseen as f64 <= all as f64 * 0.005, "{} of {all} unseen", growth.unseen);
}
