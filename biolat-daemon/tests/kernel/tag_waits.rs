//! Waits for a free tag: counted by pool, as often as the kernel's tracepoint fires.

use std::{path::Path, thread};

use crate::support::{
    block,
    bpf::tag_wait_devices,
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, wait_for},
    figures::Figures,
    load::Target,
    null_blk::NullBlk,
    settled::settled,
    tracing::{self, Events},
};

const EVENT: &str = "block_rq_tag_wait";
const READERS: u64 = 32;
const READS: u64 = 20;

/// Creates a device with two tags, or four in the scheduler.
fn with_few_tags(scheduler: &str) -> NullBlk {
    let disk = NullBlk::with_latency(2_000_000, &[("hw_queue_depth", "2"), ("submit_queues", "1")]);
    block::set_attribute(&disk.name, "queue/scheduler", scheduler);
    disk
}

/// Reads from more threads than there are tags. Returns how often the tracepoint fired.
fn contend(disk: &NullBlk) -> f64 {
    let events = Events::count(EVENT, &disk.name);
    thread::scope(|scope| {
        for reader in 0..READERS {
            scope.spawn(move || {
                let target = Target::open(&disk.path());
                for round in 0..READS {
                    // Far apart, to prevent merging.
                    target.try_read_at((reader * READS + round) << 18, 4096).unwrap();
                }
            });
        }
    });
    events.stop() as f64
}

fn start(disk: &NullBlk, pin: &Path, more: &[&str]) -> Daemon {
    let own = ["--interval", "200ms", "--device", &disk.name, "--pin", pin.to_str().unwrap()];
    Daemon::start(&[&own[..], more].concat())
}

/// The waits by pool: those counted, and those that the kernel did not run the program for, which name no pool.
fn waits(figures: &Figures, disk: &NullBlk) -> ([f64; 3], f64) {
    let of = |pool| figures.value("biolat_tag_waits_total", &[("device", &disk.name), ("pool", pool)]);
    (["driver", "scheduler", "reserved"].map(of), figures.value("biolat_lost_tag_waits_total", &[]))
}

/// A restarted daemon continues its probe's counts. With other options, it replaces the probe and carries the counts over.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn counts_each_wait_in_its_pool() {
    for (scheduler, own_pool) in [("none", 0), ("mq-deadline", 1)] {
        let disk = with_few_tags(scheduler);
        let bpf = BpfFileSystem::mount("tag-waits-bpf");
        let daemon = start(&disk, bpf.path(), &[]);
        Target::open(&disk.path()).read(50);
        let figures = settled(&daemon, &disk.name).figures;
        assert!(figures.metrics("biolat_tag_waits_total", &[]).is_empty(), "waits of a single reader");
        let counts_waits = !figures.metrics("biolat_lost_tag_waits_total", &[]).is_empty();
        assert_eq!(counts_waits, tracing::has_event(EVENT));
        if !counts_waits {
            continue;
        }
        let mut fired = contend(&disk);
        assert!(fired > (READERS * READS / 2) as f64, "{fired}");
        let assert_exact = |daemon: &Daemon, fired: f64| {
            let (by_pool, lost) = waits(&settled(daemon, &disk.name).figures, &disk);
            println!("{scheduler}: {fired} waits, counted {by_pool:?}, lost {lost}");
            assert_eq!(by_pool[own_pool] + lost, fired);
            assert_eq!(by_pool.iter().sum::<f64>(), by_pool[own_pool], "{by_pool:?}");
            assert!(lost <= fired / 10.0, "{lost}");
        };
        assert_exact(&daemon, fired);
        drop(daemon);
        fired += contend(&disk);
        let daemon = start(&disk, bpf.path(), &[]);
        assert_exact(&daemon, fired);
        drop(daemon);
        fired += contend(&disk);
        let daemon = start(&disk, bpf.path(), &["--slow", "100ms"]);
        fired += contend(&disk);
        assert_exact(&daemon, fired);
        assert_eq!(tag_wait_devices(), 1);
        drop(disk);
        wait_for("the device's entry to be removed", || tag_wait_devices() == 0);
    }
}

/// Where the kernel shows no waits for a tag, they have no metrics.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn has_no_series_without_the_tracepoint() {
    let disk = with_few_tags("none");
    let daemon = Daemon::of(&disk.name);
    let has_waits = tracing::has_event(EVENT);
    if has_waits {
        contend(&disk);
    }
    let figures = settled(&daemon, &disk.name).figures;
    for metric in ["biolat_tag_waits_total", "biolat_lost_tag_waits_total"] {
        assert_eq!(!figures.metrics(metric, &[]).is_empty(), has_waits, "{metric}");
    }
}
