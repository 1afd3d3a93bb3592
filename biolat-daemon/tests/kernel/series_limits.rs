//! Few devices and many, some of which come and go all the time: memory follows those that are there.

use std::{thread, time::Duration};

use crate::support::{
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::Figures,
    load::{self, Target},
    machine::{Holdings, MIB, PER_CPU_ARRAY, map_memory, possible_cpus, slots},
    null_blk::NullBlk,
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn four_devices_take_little_memory() {
    assert_eq!(possible_cpus(), 2);
    let disks: Vec<_> = (0..4).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect();
    let daemon = Daemon::of("nullb.*");
    disks.iter().for_each(|disk| load::mixed(&disk.path()));
    let figures = daemon.fresh();
    let resident = figures.value("process_resident_memory_bytes", &[]);
    let maps = map_memory(daemon.pid(), PER_CPU_ARRAY) as f64;
    println!("RSS {:.1} MiB, per-CPU maps {:.2} MiB", resident / MIB, maps / MIB);
    assert!(resident <= 16.0 * MIB, "RSS {resident}");
    assert!(maps <= 1.5 * MIB, "maps {maps}");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn so_many_devices_come_and_go_and_come_again() {
    const DEVICES: usize = 256;
    let daemon = Daemon::start(&["--interval", "500ms", "--device", "nullb.*"]);
    let round = || {
        let before = lost(&daemon.fresh());
        let settings = [("submit_queues", "1"), ("hw_queue_depth", "4"), ("size", "16")];
        let disks: Vec<_> = (0..DEVICES).map(|_| NullBlk::new(&settings)).collect();
        wait_for("all of them", || {
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
            // From its first request on: those that look for partitions, for which there may be no room yet.
            let reads = figures.count(&disk.name, READ);
            missing += Stat::of(&disk.name).completions(READ) - reads;
            assert!(reads >= 3 && figures.count(&disk.name, WRITE) == 3, "{}", disk.name);
            assert_eq!(figures.unseen(&disk.name), 0, "{}", disk.name);
        }
        let lost = lost(&figures) - before;
        assert_eq!(missing, lost, "books = counted + lost");
        drop(disks);
        wait_for("none of them", || {
            Figures::scrape(daemon.address).metrics("biolat_device_info", &[]).is_empty()
        });
        // Until the slots of the last lie fallow no more.
        thread::sleep(Duration::from_millis(600));
        println!("{lost} lost");
        (Holdings::of(&daemon, &daemon.fresh()), lost)
    };
    let (first, _) = round();
    let most = slots(2 * DEVICES as u64) + slots(0);
    assert!(first.slots <= most as f64, "{first:?}, and at most {most}");
    let (second, lost) = round();
    assert_eq!((second.slots, lost), (first.slots, 0), "there was room for all of it before");
    second.is_about(&first);
}

fn lost(figures: &Figures) -> u64 {
    figures.lost("no_room") + figures.lost("unknown_device")
}

/// More series at once than there is room for: what is lost is counted, said once, and soon there is room.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn without_room_completions_are_counted_as_lost() {
    // Nothing is foreseen for devices that are not shown, and the next pass is far away.
    let daemon = Daemon::start(&["--interval", "12s", "--device", "none"]);
    let settings = [("submit_queues", "1"), ("hw_queue_depth", "4"), ("size", "16")];
    let disks: Vec<_> = (0..100).map(|_| NullBlk::new(&settings)).collect();
    let slots = Figures::scrape(daemon.address).value("biolat_series_slots", &[]);
    assert!(slots < 80.0, "{slots} slots, too many for this test");
    // Of each those that looked for partitions, in one series; the last ones come too late for a slot.
    let unlucky = disks.last().unwrap();
    let target = Target::open(&unlucky.path());
    target.read_first(5);
    let booked: Vec<_> = disks.iter().map(|disk| Stat::of(&disk.name).completions(READ)).collect();
    let lost = next_pass(&daemon).lost("no_room");
    println!("{lost} of {} were lost", booked.iter().sum::<u64>());
    // Those of whole series: a slot is had at the first completion, or not at all until the next pass.
    let mut of_the_last = booked.iter().rev().scan(0, |sum, booked| {
        *sum += booked;
        Some(*sum)
    });
    assert!(lost > 0 && of_the_last.any(|sum| sum == lost), "{lost} lost of {booked:?}");
    let said = |name: &str| {
        let line = format!("no room for read of {name}:");
        daemon.log().iter().filter(|said| said.contains(&line)).count()
    };
    let told: usize = disks.iter().map(|disk| said(&disk.name)).sum();
    assert!(told >= 1 && disks.iter().all(|disk| said(&disk.name) <= 1), "{:?}", daemon.log());
    // There is room now, and nothing stands still.
    target.read_first(7);
    assert_eq!(next_pass(&daemon).lost("no_room"), lost);
}

fn next_pass(daemon: &Daemon) -> Figures {
    let last = Figures::scrape(daemon.address).taken();
    wait_for("the next pass", || Figures::scrape(daemon.address).taken() > last);
    Figures::scrape(daemon.address)
}
