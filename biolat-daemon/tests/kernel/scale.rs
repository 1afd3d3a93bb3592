//! A large server: 384 CPUs and 21 drives.

use std::time::{Duration, Instant};

use crate::support::{
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::{Figures, PROTOBUF},
    http,
    load::Target,
    machine::{MIB, PER_CPU_ARRAY, map_memory, possible_cpus, slot_bytes, slots},
    null_blk::NullBlk,
};

/// Duration of all collections so far in seconds, and their number.
fn collections(figures: &Figures) -> (f64, f64) {
    let metrics = figures.metrics("biolat_collect_duration_seconds", &[]);
    let histogram = metrics[0].histogram.as_ref().unwrap();
    (histogram.sample_sum, histogram.sample_count as f64)
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn reads_and_writes_of_21_drives_on_384_cpus() {
    assert_eq!(possible_cpus(), 384);
    let disks: Vec<_> = (0..21).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect();
    let daemon = Daemon::start(&["--interval", "500ms", "--device", "nullb.*"]);
    let accounted: Vec<_> = disks.iter().map(|disk| Stat::of(&disk.name)).collect();
    for disk in &disks {
        let target = Target::open(&disk.path());
        target.read(50);
        target.write(30);
    }
    let figures = daemon.fresh();
    for (disk, before) in disks.iter().zip(accounted) {
        let now = Stat::of(&disk.name);
        for group in [READ, WRITE] {
            let grown = now.completions(group) - before.completions(group);
            assert_eq!(figures.count(&disk.name, group), grown, "{} {}", disk.name, group.name);
        }
        assert_eq!(figures.unseen(&disk.name), 0);
    }

    let bytes = figures.value("biolat_map_bytes", &[]) as u64;
    assert_eq!(bytes, slot_bytes(slots(42)));
    let in_kernel = map_memory(daemon.pid(), PER_CPU_ARRAY);
    println!(
        "maps: {:.2} MiB by the formula, {:.2} MiB by the kernel's accounting",
        bytes as f64 / MIB,
        in_kernel as f64 / MIB
    );
    assert!((bytes..84 << 20).contains(&in_kernel), "{in_kernel} bytes");

    let resident = figures.value("process_resident_memory_bytes", &[]);
    let cpu = |figures: &Figures| figures.value("process_cpu_seconds_total", &[]);
    let (before, mut after) = (Figures::scrape(daemon.address), figures);
    wait_for("ten collections", || {
        std::thread::sleep(Duration::from_millis(200));
        after = Figures::scrape(daemon.address);
        collections(&after).1 >= collections(&before).1 + 10.0
    });
    let ((began, first), (ended, last)) = (collections(&before), collections(&after));
    println!(
        "RSS {:.1} MiB; a collection {:.1} ms, {:.1} ms CPU with its scrapes",
        resident / MIB,
        (ended - began) / (last - first) * 1e3,
        (cpu(&after) - cpu(&before)) / (last - first) * 1e3
    );
    assert!(resident <= 48.0 * MIB, "RSS {resident}");

    let openmetrics = "Accept: application/openmetrics-text; version=1.0.0\r\n";
    for (format, accept) in [("protobuf", PROTOBUF), ("OpenMetrics", openmetrics), ("text", "")] {
        // The first request of a snapshot encodes it.
        let began = Instant::now();
        let answer = http::get(daemon.address, "/metrics", accept).unwrap();
        println!(
            "{format}: {} KiB in {:.1} ms",
            answer.body.len() >> 10,
            began.elapsed().as_secs_f64() * 1e3
        );
        assert_eq!(answer.status, 200);
    }

    // All of them disappear at once, and as many others appear: they reuse the slots.
    drop(disks);
    let disks: Vec<_> = (0..21).map(|_| NullBlk::in_memory(&[("submit_queues", "2")])).collect();
    wait_for("the others", || {
        let figures = Figures::scrape(daemon.address);
        disks.iter().all(|disk| figures.count(&disk.name, READ) > 0)
    });
    let figures = daemon.fresh();
    let missing = |disk: &NullBlk| Stat::of(&disk.name).completions(READ) - figures.count(&disk.name, READ);
    let lost = figures.lost("no_room") + figures.lost("unknown_device");
    assert_eq!(disks.iter().map(missing).sum::<u64>(), lost, "disk statistics = counted + lost");
    let bytes = figures.value("biolat_map_bytes", &[]) as u64;
    println!("again: {:.2} MiB, {lost} lost", bytes as f64 / MIB);
    assert!(bytes <= slot_bytes(slots(42) + 4) && bytes <= 84 << 20, "{bytes} bytes");
}
