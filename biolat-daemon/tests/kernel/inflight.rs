//! I/Os in flight and the age of the oldest one, on devices with a configured latency.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    block,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    inflight::{Shown, assert_oldest, check_churn, since_epoch, wait_until_clear},
    load::{StopFlag, Target, keep_reading},
    null_blk::NullBlk,
    settled::{compare, settled},
};

/// Allowed difference between an age and the test's clock, in seconds; an emulated machine is slow.
const TOLERANCE: f64 = 0.5;

fn reads_in_flight(device: &str) -> u64 {
    block::attribute(device, "inflight").split_whitespace().next().unwrap().parse().unwrap()
}

/// Reads one block at the offset of `number`. Returns the duration in seconds.
fn timed_read(disk: &NullBlk, number: u64) -> f64 {
    let target = Target::open(&disk.path());
    let began = Instant::now();
    target.try_read_at(number << 20, 4096).unwrap();
    began.elapsed().as_secs_f64()
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn slow_ios_are_in_flight() {
    const READS: u64 = 3;
    let slow = NullBlk::with_latency(10_000_000_000, &[("submit_queues", "2")]);
    // The default is 5 s.
    block::set_attribute(&slow.name, "queue/io_timeout", "60000");
    let fast = NullBlk::in_memory(&[("submit_queues", "2")]);
    let daemon = Daemon::of("nullb.*");
    let before = settled(&daemon, &slow.name);
    let stop = StopFlag::default();
    let latencies: Vec<_> = thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        scope.spawn(|| keep_reading(&fast.path(), &stop));
        let slow = &slow;
        let submitted = since_epoch();
        let readers: Vec<_> =
            (0..READS).map(|number| scope.spawn(move || timed_read(slow, number))).collect();
        wait_for("the reads to be in flight", || reads_in_flight(&slow.name) == READS);
        for seconds in [1, 5, 8] {
            thread::sleep((submitted + Duration::from_secs(seconds)).saturating_sub(since_epoch()));
            let figures = daemon.fresh();
            assert_oldest(&figures, &slow.name, submitted, TOLERANCE);
            let shown = Shown::of(&figures, &slow.name);
            assert_eq!((shown.reads, shown.writes), (READS, 0));
            assert!(Shown::of(&figures, &fast.name).oldest < 1.0);
        }
        drop(stopper);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect()
    });
    let after = settled(&daemon, &slow.name);
    for device in [&slow, &fast] {
        wait_until_clear(&daemon, &device.name);
    }
    let growth = compare(&slow.name, &before, &after);
    assert_eq!((growth.of(READ), growth.missed), (READS, 0));
    let (measured, expected) = (growth.seconds("total", "read"), latencies.iter().sum::<f64>());
    assert!((expected * 0.95..=expected).contains(&measured), "{measured} s, {latencies:?}");
    for (device, over, count) in [(&slow, "0.125", READS), (&slow, "8", READS), (&fast, "8", 0)] {
        let labels = [("device", device.name.as_str()), ("over", over)];
        assert_eq!(after.figures.value("biolat_slow_ios_total", &labels) as u64, count, "{labels:?}");
    }
}

/// The driver takes one request at a time; the rest, including the oldest, wait in the scheduler.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn oldest_io_can_wait_in_scheduler() {
    const READS: u64 = 3;
    let one_at_a_time = [("hw_queue_depth", "1"), ("submit_queues", "1")];
    let disk = NullBlk::with_latency(3_000_000_000, &one_at_a_time);
    block::set_attribute(&disk.name, "queue/scheduler", "mq-deadline");
    // Enough for all readers; the default is twice the device's queue depth.
    block::set_attribute(&disk.name, "queue/nr_requests", "64");
    let daemon = Daemon::of(&disk.name);
    let completed = || Stat::of(&disk.name).completions(READ);
    let before = completed();
    thread::scope(|scope| {
        let disk = &disk;
        let submitted = since_epoch();
        for number in 0..READS {
            scope.spawn(move || timed_read(disk, number));
        }
        for done in 0..READS {
            wait_for("a read to complete", || completed() == before + done);
            // The driver now has the next request, submitted at the same time as the first.
            let figures = daemon.fresh();
            assert_oldest(&figures, &disk.name, submitted, TOLERANCE);
            let shown = Shown::of(&figures, &disk.name);
            assert_eq!((shown.reads, shown.writes), (1, 0));
        }
    });
    wait_until_clear(&daemon, &disk.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn busy_device_does_not_look_hung() {
    let disks = [
        NullBlk::new(&[("submit_queues", "2")]),
        NullBlk::with_latency(10_000_000, &[("submit_queues", "2")]),
    ];
    let devices = disks.each_ref().map(|disk| (disk.name.as_str(), disk.path()));
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nullb.*"]);
    check_churn(&daemon, &devices);
}
