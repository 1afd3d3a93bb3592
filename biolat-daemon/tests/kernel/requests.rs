//! Partial completions, requeues, merges, splits, flushes and zones: each request counts once, when it ends, as in diskstats.

use std::{fs, os::unix::fs::FileExt as _};

use crate::{
    counts::{FILESYSTEMS, assert_fsync_is_exact},
    support::{
        Folder, block,
        daemon::Daemon,
        diskstats::{FLUSH, READ, WRITE},
        file_system,
        fio::write_in_batches,
        kernel::{self, Ability},
        load::{self, SpinBarrier, Target},
        null_blk::NullBlk,
        run,
        scsi_debug::{Fault, ScsiDebug},
        settled::{compare, settled},
        tracing::Events,
    },
};

/// The probe handles new and known series differently, so each load runs twice.
const ROUNDS: [&str; 2] = ["with a new series", "with a known series"];

/// Reads while the drive injects a fault into every nth command; the number of `event`s proves that it did. Each read counts
/// once, with all its phases.
fn counts_each_read_once(fault: Fault, every: u32, reads: u64, (event, at_least): (&'static str, usize)) {
    let Some(drive) = ScsiDebug::load() else { return };
    let daemon = Daemon::of(&drive.name);
    for round in ROUNDS {
        let before = settled(&daemon, &drive.name);
        let events = Events::count(event, &drive.name);
        drive.inject(fault, every);
        load::on_two_cpus(|_| Target::open(&block::path(&drive.name)).read(reads));
        drive.inject(fault, 0);
        let events = events.stop();
        let after = settled(&daemon, &drive.name);
        let growth = compare(&drive.name, &before, &after);
        assert_eq!((growth.of(READ), growth.missed), (2 * reads, 0), "{round}");
        assert!(events >= at_least, "{event} occurred {events} times in {} reads {round}", 2 * reads);
        if event == "block_rq_requeue" {
            assert_eq!(growth.value("biolat_requeues_total", &[("op", "read")]), events as f64, "{round}");
        }
        assert_eq!(growth.value("biolat_failed_ios_total", &[]), 0.0, "{round}");
        assert_eq!(growth.sizes("read"), [(12, 2 * reads)].into(), "{round}: of 4 KiB");
        assert_eq!(growth.bands("read"), [("le_4KiB", 2 * reads)].into(), "{round}");
        let [device, total] = ["device", "total"].map(|phase| growth.latencies(phase, "read"));
        assert_eq!(device, total, "{round}");
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn partial_completions_count_once() {
    counts_each_read_once(Fault::Short, 3, 300, ("block_rq_complete", 750));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn requeued_request_counts_once() {
    counts_each_read_once(Fault::Busy, 5, 200, ("block_rq_requeue", 50));
}

/// Adjacent blocks submitted together become one request.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn merged_requests_count_as_one() {
    const BLOCKS: u64 = 1600;
    let disk = NullBlk::in_memory(&[("submit_queues", "2")]);
    let daemon = Daemon::of(&disk.name);
    for round in ROUNDS {
        let before = settled(&daemon, &disk.name);
        write_in_batches(&disk.path(), BLOCKS);
        let after = settled(&daemon, &disk.name);
        let growth = compare(&disk.name, &before, &after);
        let merged = after.diskstats.merged(WRITE) - before.diskstats.merged(WRITE);
        println!("{merged} of {BLOCKS} blocks were merged {round}");
        assert!(merged >= BLOCKS / 4, "{merged} of {BLOCKS} blocks were merged");
        assert_eq!((growth.of(WRITE) + merged, growth.missed), (BLOCKS, 0), "{round}");
        assert_eq!(growth.bytes(WRITE), BLOCKS * 4096, "{round}");
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn split_write_counts_as_several_requests() {
    let disk = NullBlk::in_memory(&[("submit_queues", "2")]);
    block::set_attribute(&disk.name, "queue/max_sectors_kb", "64");
    let daemon = Daemon::of(&disk.name);
    for round in ROUNDS {
        let before = settled(&daemon, &disk.name);
        load::on_two_cpus(|cpu| {
            let target = Target::open(&disk.path());
            for number in 0..20 {
                target.write_at((cpu * 20 + number) << 20, 1 << 20);
            }
        });
        let after = settled(&daemon, &disk.name);
        let growth = compare(&disk.name, &before, &after);
        // Requests of 64 KiB each.
        assert_eq!((growth.of(WRITE), growth.missed), (40 * 16, 0), "{round}");
    }
}

/// With a volatile cache and no FUA, the kernel executes each synchronous write as a sequence of flush, data, flush.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn fsync_on_a_volatile_cache_is_exact() {
    let disk = "vda";
    assert_eq!(block::attribute(disk, "queue/write_cache"), "write back");
    assert_eq!(block::attribute(disk, "queue/fua"), "0");
    for filesystem in FILESYSTEMS {
        assert_fsync_is_exact(filesystem, disk);
    }
}

/// For a synchronous write, the kernel has the drive write the data and flush its cache; the request ends with no bytes left.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn write_with_flushes_has_size_of_its_data() {
    let device = "vda";
    assert_eq!(block::attribute(device, "queue/fua"), "0");
    let daemon = Daemon::of(device);
    let before = settled(&daemon, device);
    let target = Target::open_synchronous(&block::path(device));
    target.write(100);
    for place in 0..50 {
        target.write_at(place << 20, 64 << 10);
    }
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    assert!(growth.of(FLUSH) > 0);
    // Some kernels send an empty flush after each write; the flush is accounted as a write.
    let mut sizes = growth.sizes("write");
    let empty = sizes.remove(&8).unwrap_or(0);
    assert_eq!((sizes, empty), ([(12, 100), (16, 50)].into(), growth.of(WRITE) - 150));
    assert_eq!(growth.bands("write"), [("le_4KiB", 100), ("le_64KiB", 50)].into());
}

/// An fsync with no data to write sends an empty flush, which is accounted as a write and ends without being dispatched. Its
/// dispatch time is 0, which looks like a valid timestamp in the first minutes after boot.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn empty_flush_has_only_total() {
    let uptime = fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split_whitespace().next().unwrap().parse().unwrap();
    assert!(uptime < 1000.0, "up for {uptime} s: too long for 0 to look like a timestamp");
    let disk = NullBlk::in_memory(&[("cache_size", "16")]);
    let daemon = Daemon::of(&disk.name);
    let target = Target::open(&disk.path());
    target.write(1);
    let before = settled(&daemon, &disk.name);
    for _ in 0..50 {
        target.flush();
    }
    let after = settled(&daemon, &disk.name);
    let growth = compare(&disk.name, &before, &after);
    assert_eq!((growth.of(WRITE), growth.of(FLUSH)), (50, 50));
    let phases = |op| ["queue", "device", "total"].map(|phase| growth.latencies(phase, op));
    assert_eq!((phases("write"), phases("flush")), ([0, 0, 50], [50, 50, 50]));
    assert_eq!((growth.sizes("write"), growth.bands("write").len()), ([(8, 50)].into(), 0), "no data");
}

/// Both CPUs complete the first write of a new device at the same time: one creates the series, and neither write is lost.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn concurrent_first_ios_create_one_series() {
    let daemon = Daemon::of("nullb.*");
    for _ in 0..20 {
        let disks: Vec<_> =
            (0..4).map(|_| NullBlk::new(&[("submit_queues", "2"), ("irqmode", "0")])).collect();
        let barrier = SpinBarrier::default();
        load::on_two_cpus(|_| {
            for (disk, round) in disks.iter().zip(1..) {
                let target = Target::open(&disk.path());
                barrier.wait_for_round(round);
                target.write(3);
            }
        });
        let figures = daemon.fresh();
        for disk in &disks {
            assert_eq!(figures.count(&disk.name, WRITE), 6, "{}", disk.name);
        }
        assert_eq!(figures.lost("no_room") + figures.lost("unknown_device"), 0);
    }
}

/// Zones are opened, written, closed, finished and reset; each is a separate op.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn zone_ops_are_exact() {
    const OPEN: libc::Ioctl = 0x4010_1286;
    const CLOSE: libc::Ioctl = 0x4010_1287;
    const FINISH: libc::Ioctl = 0x4010_1288;
    const RESET: libc::Ioctl = 0x4010_1283;
    if kernel::is_skipped_without(Ability::Zones) {
        return;
    }
    let zone_sectors = 4 << 11;
    let disk =
        NullBlk::in_memory(&[("zoned", "1"), ("zone_size", "4"), ("zone_nr_conv", "0"), ("discard", "0")]);
    let daemon = Daemon::of(&disk.name);
    let ops = ["write", "zone_open", "zone_close", "zone_finish", "zone_reset", "zone_reset_all"];
    for round in ROUNDS {
        let before = settled(&daemon, &disk.name);
        load::on_two_cpus(|cpu| {
            let target = Target::open(&disk.path());
            for zone in cpu * 10..cpu * 10 + 10 {
                let range = [zone * zone_sectors, zone_sectors];
                target.control(OPEN, &range);
                for block in 0..8 {
                    target.write_at(range[0] * 512 + block * 4096, 4096);
                }
                target.control(CLOSE, &range);
                target.control(FINISH, &range);
                target.control(RESET, &range);
            }
        });
        Target::open(&disk.path()).control(RESET, &[0, 256 << 11]);
        let after = settled(&daemon, &disk.name);
        let growth = compare(&disk.name, &before, &after);
        let counted = ops.map(|op| growth.latencies("total", op));
        assert_eq!(counted, [160, 20, 20, 20, 20, 1], "{round}: {ops:?}");
        assert_eq!((growth.missed, growth.bytes(WRITE)), (0, 160 * 4096), "{round}");
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn zone_appends_are_exact() {
    if kernel::is_skipped_without(Ability::Zones) {
        return;
    }
    if !file_system::is_there("btrfs") || !kernel::module_has_member("btrfs", "btrfs_fs_info", "zone_size") {
        return kernel::skip("there is no btrfs with a zoned mode, which uses zone appends");
    }
    let disk =
        NullBlk::in_memory(&[("zoned", "1"), ("zone_size", "4"), ("zone_nr_conv", "0"), ("discard", "0")]);
    let path = disk.path();
    let daemon = Daemon::of(&disk.name);
    run("mkfs.btrfs", &["-q", "-O", "zoned", "-d", "single", "-m", "single", path.to_str().unwrap()]);
    let before = settled(&daemon, &disk.name);
    let folder = Folder::new("zones", true);
    run("mount", &["-t", "btrfs", path.to_str().unwrap(), folder.0.to_str().unwrap()]);
    load::on_two_cpus(|cpu| {
        let file = fs::File::create(folder.0.join(format!("file-{cpu}"))).unwrap();
        for block in 0..40 {
            file.write_all_at(&[cpu as u8; 16384], block * 16384).unwrap();
            file.sync_data().unwrap();
        }
    });
    run("umount", &[folder.0.to_str().unwrap()]);
    let after = settled(&daemon, &disk.name);
    let growth = compare(&disk.name, &before, &after);
    let appends = growth.latencies("total", "zone_append");
    println!("{appends} appends of {} writes", growth.of(WRITE));
    assert!(appends >= 80 && growth.missed == 0, "{appends} appends");
}
