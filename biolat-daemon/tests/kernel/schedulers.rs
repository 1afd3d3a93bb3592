//! I/O schedulers: time spent in one is queue latency, not device latency.

use std::thread;

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::READ,
    load::Target,
    null_blk::NullBlk,
    run,
    settled::{compare, settled},
};

const SERVICE: f64 = 0.005;
const READERS: u64 = 8;
const ROUNDS: u64 = 15;

/// Returns the mean queue and device latencies with many readers on a device with a queue depth of 1.
fn means_under(scheduler: &str) -> (f64, f64) {
    let one_at_a_time = [("hw_queue_depth", "1"), ("submit_queues", "1")];
    let disk = NullBlk::with_latency((SERVICE * 1e9) as u64, &one_at_a_time);
    block::set_attribute(&disk.name, "queue/scheduler", scheduler);
    if scheduler != "none" {
        // Enough for all readers; the default is twice the device's queue depth.
        block::set_attribute(&disk.name, "queue/nr_requests", "64");
    }
    let daemon = Daemon::of(&disk.name);
    let before = settled(&daemon, &disk.name);
    thread::scope(|scope| {
        for reader in 0..READERS {
            let disk = &disk;
            scope.spawn(move || {
                let target = Target::open(&disk.path());
                for round in 0..ROUNDS {
                    // Far apart, to prevent merging.
                    target.try_read_at((reader * ROUNDS + round) << 20, 4096).unwrap();
                }
            });
        }
    });
    let after = settled(&daemon, &disk.name);
    let growth = compare(&disk.name, &before, &after);
    assert_eq!((growth.of(READ), growth.missed), (READERS * ROUNDS, 0), "{scheduler}");
    let mean = |phase| growth.seconds(phase, "read") / growth.latencies(phase, "read") as f64;
    let (queue, device, total) = (mean("queue"), mean("device"), mean("total"));
    println!("{scheduler}: queue {queue:.4} s, device {device:.4} s");
    assert!((queue + device - total).abs() < 1e-9, "{queue} + {device} = {total}");
    // The driver takes only one request at a time.
    assert!((SERVICE..SERVICE * 3.0).contains(&device), "{scheduler}: {device} s in the device");
    (queue, device)
}

/// Each request waits for seven others.
fn assert_queue_latency(scheduler: &str) {
    let (queue, device) = means_under(scheduler);
    assert!(queue > device * 4.0, "{scheduler}: {queue} s in the queue, {device} s in the device");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn mq_deadline_has_queue_latency() {
    assert_queue_latency("mq-deadline");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn bfq_has_queue_latency() {
    run("modprobe", &["bfq"]);
    assert_queue_latency("bfq");
}

/// Without a scheduler, a submitter waits for a free driver tag. The kernel allocates the request after that wait, so queue
/// latency is short.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn queue_latency_is_short_without_scheduler() {
    let (queue, device) = means_under("none");
    assert!(queue < device, "{queue} s in the queue, {device} s in the device");
}
