//! Memory depends on the number of devices; without free slots, completions are lost.

use std::{thread, time::Duration};

use crate::support::{
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::Figures,
    load::{self, Target},
    machine::{MIB, Resources, counter_memory, online_cpus, slots},
    null_blk::NullBlk,
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn four_devices_use_little_memory() {
    assert_eq!(online_cpus(), 2);
    let disks: Vec<_> = (0..4).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect();
    let daemon = Daemon::of("nullb.*");
    disks.iter().for_each(|disk| load::mixed(&disk.path()));
    let figures = daemon.fresh();
    let resident = figures.value("process_resident_memory_bytes", &[]);
    let maps = counter_memory(daemon.pid()) as f64;
    println!("RSS {:.1} MiB, counters {:.2} MiB", resident / MIB, maps / MIB);
    assert!(resident <= 16.0 * MIB, "RSS {resident}");
    // The counters plus the workloads.
    assert!(maps <= (1.5 + 2.75) * MIB, "maps {maps}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn many_devices_come_and_go_repeatedly() {
    const DEVICES: usize = 128;
    let daemon = Daemon::start(&["--interval", "500ms", "--device", "nullb.*"]);
    let round = || {
        let before = lost(&daemon.fresh());
        let settings = [("submit_queues", "1"), ("hw_queue_depth", "4"), ("size", "16")];
        let disks: Vec<_> = (0..DEVICES).map(|_| NullBlk::new(&settings)).collect();
        wait_for("all devices", || {
            Figures::scrape(daemon.address).metrics("biolat_device_info", &[]).len() == DEVICES
        });
        for disk in &disks {
            let target = Target::open(&disk.path());
            for number in 0..3 {
                target.try_read_at(number * 65536, 4096).unwrap();
                target.write_at(number * 65536, 4096);
            }
        }
        let figures = daemon.fresh();
        let mut missing = 0;
        for disk in &disks {
            // The kernel's first reads look for partitions, and may find no slot yet.
            let reads = figures.count(&disk.name, READ);
            missing += Stat::of(&disk.name).completions(READ) - reads;
            assert!(reads >= 3 && figures.count(&disk.name, WRITE) == 3, "{}", disk.name);
            assert_eq!(figures.missed(&disk.name), 0, "{}", disk.name);
        }
        let lost = lost(&figures) - before;
        assert_eq!(missing, lost, "disk statistics = counted + lost");
        drop(disks);
        wait_for("no device", || {
            Figures::scrape(daemon.address).metrics("biolat_device_info", &[]).is_empty()
        });
        // Longer than the quarantine of slots.
        thread::sleep(Duration::from_millis(600));
        println!("{lost} lost");
        (Resources::of(&daemon, &daemon.fresh()), lost)
    };
    let (first, _) = round();
    let most = slots(2 * DEVICES as u64) + slots(0);
    assert!(first.slots <= most as f64, "{first:?}, expected {most} at most");
    let (second, lost) = round();
    assert_eq!((second.slots, lost), (first.slots, 0), "the first round's slots were not enough");
    second.assert_no_growth_since(&first);
}

fn lost(figures: &Figures) -> u64 {
    figures.lost("no_room") + figures.lost("unknown_device")
}

/// With more series at once than slots, the excess I/O is counted as lost and logged once, and then slots are added.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn completions_without_slot_are_lost() {
    // No slots are reserved for devices that are not shown, and the next collection is far away.
    let daemon = Daemon::start(&["--interval", "12s", "--device", "none"]);
    let settings = [("submit_queues", "1"), ("hw_queue_depth", "4"), ("size", "16")];
    let disks: Vec<_> = (0..100).map(|_| NullBlk::new(&settings)).collect();
    let slots = Figures::scrape(daemon.address).value("biolat_series_slots", &[]);
    assert!(slots < 80.0, "{slots} slots are too many for this test");
    // Each device has one series, for the partition scan; the last series find no slot.
    let unlucky = disks.last().unwrap();
    let target = Target::open(&unlucky.path());
    target.read_first(5);
    let accounted: Vec<_> = disks.iter().map(|disk| Stat::of(&disk.name).completions(READ)).collect();
    let lost = next_collection(&daemon).lost("no_room");
    println!("{lost} of {} were lost", accounted.iter().sum::<u64>());
    // Only whole series are lost: a series gets a slot at its first completion, or not until the next collection.
    let mut of_the_last = accounted.iter().rev().scan(0, |sum, accounted| {
        *sum += accounted;
        Some(*sum)
    });
    assert!(lost > 0 && of_the_last.any(|sum| sum == lost), "{lost} lost of {accounted:?}");
    let logged = |name: &str| {
        let line = format!("no room to count read on {name}:");
        daemon.log().iter().filter(|found| found.contains(&line)).count()
    };
    let reported: usize = disks.iter().map(|disk| logged(&disk.name)).sum();
    assert!(reported >= 1 && disks.iter().all(|disk| logged(&disk.name) <= 1), "{:?}", daemon.log());
    // Slots have been added, and I/O continues.
    target.read_first(7);
    assert_eq!(next_collection(&daemon).lost("no_room"), lost);
}

fn next_collection(daemon: &Daemon) -> Figures {
    let last = Figures::scrape(daemon.address).taken();
    wait_for("the next collection", || Figures::scrape(daemon.address).taken() > last);
    Figures::scrape(daemon.address)
}
