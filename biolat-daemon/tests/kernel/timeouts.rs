//! A SCSI drive that does not respond: the kernel aborts its commands after a timeout, and retries or fails them.

use std::{
    fs, io, thread,
    time::{Duration, Instant},
};

use biolat_common::series::Phase;

use crate::support::{
    block,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat, WRITE},
    figures::Figures,
    inflight::{Shown, assert_oldest, since_epoch, wait_until_clear},
    load::{StopFlag, Target, keep_reading},
    null_blk::NullBlk,
    scsi_debug::{Fault, ScsiDebug},
    settled::{Moment, compare, settled},
    slow_log::slow_ios,
    tracing::Events,
};

const READS: u64 = 3;
const WRITES: u64 = 1;
const IOS: u64 = READS + WRITES;
const BLOCK: u64 = 4096;

/// Command timeout in seconds; the kernel rounds it up by at most one second.
const TIMEOUT: f64 = 2.0;

/// Allowed difference between a measured time and the test's clock, in seconds; an emulated machine is slow.
const TOLERANCE: f64 = 0.5;

/// How the hang ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The drive responds again, after the second timeout at the earliest.
    Success,
    /// The kernel retries each command once, then fails it.
    Failure,
}

/// An I/O, as measured by its thread.
struct TimedIo {
    seconds: f64,
    outcome: io::Result<()>,
}

impl TimedIo {
    /// Reads one block at an offset derived from `number`, or writes it if `number` is `READS` or higher.
    fn run(device: &str, number: u64) -> Self {
        let target = Target::open(&block::path(device));
        let (began, place) = (Instant::now(), number << 20);
        let outcome = match number {
            0..READS => target.try_read_at(place, BLOCK as usize),
            _ => target.try_write_at(place, BLOCK as usize),
        };
        Self { seconds: began.elapsed().as_secs_f64(), outcome }
    }

    /// Returns the kernel's block status for the thread's result.
    fn status(&self) -> &'static str {
        match self.outcome.as_ref().map_err(io::Error::raw_os_error) {
            Ok(()) => "ok",
            Err(Some(libc::EIO)) => "ioerr",
            Err(Some(libc::ETIMEDOUT)) => "timeout",
            Err(number) => panic!("errno {number:?}"),
        }
    }
}

fn set_timeout(device: &str, end: End) {
    block::set_attribute(device, "device/timeout", &TIMEOUT.to_string());
    if end == End::Failure {
        let mut disks = fs::read_dir(format!("/sys/block/{device}/device/scsi_disk")).unwrap();
        fs::write(disks.next().unwrap().unwrap().path().join("max_retries"), "1").unwrap();
    }
}

/// Returns the number of commands that the kernel has sent to the drive.
fn commands(device: &str) -> u64 {
    block::number(device, "device/iorequest_cnt")
}

/// Sends the I/Os to the drive, which does not respond, and passes each scrape to `check` while they hang. Returns the I/Os once
/// all have ended.
fn hang(
    drive: &ScsiDebug,
    daemon: &Daemon,
    before: &Moment,
    mut check: impl FnMut(&Figures, Duration),
) -> Vec<TimedIo> {
    let name = drive.name.as_str();
    drive.inject(Fault::Timeout, 1);
    thread::scope(|scope| {
        let submitted = since_epoch();
        let ios: Vec<_> = (0..IOS).map(|number| scope.spawn(move || TimedIo::run(name, number))).collect();
        wait_for("the I/Os to be in flight", || Stat::of(name).in_flight() == IOS);
        loop {
            let figures = daemon.fresh();
            if Stat::of(name).all_completions() > before.diskstats.all_completions() {
                break;
            }
            check(&figures, submitted);
        }
        ios.into_iter().map(|io| io.join().unwrap()).collect()
    })
}

fn check_io_is_in_flight_until_it_ends(end: End) {
    let Some(drive) = ScsiDebug::load() else { return };
    let name = drive.name.as_str();
    set_timeout(name, end);
    let fast = NullBlk::in_memory(&[("submit_queues", "2")]);
    let daemon = Daemon::of(&format!("{name}|{}", fast.name));
    Target::open(&block::path(name)).write(1);
    let (before, fast_before) = (settled(&daemon, name), settled(&daemon, &fast.name));
    let (requeues, sent_before) = (Events::count("block_rq_requeue", name), commands(name));

    let stop = StopFlag::default();
    let (mut shown, mut fast_reads) = (Vec::new(), Vec::new());
    let ios = thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| keep_reading(&fast.path(), &stop));
        hang(&drive, &daemon, &before, |figures, submitted| {
            assert_oldest(figures, name, submitted, TOLERANCE);
            shown.push(Shown::of(figures, name));
            assert!(Shown::of(figures, &fast.name).oldest < 1.0);
            fast_reads.push(figures.count(&fast.name, READ));
            if end == End::Success && commands(name) >= sent_before + 2 * IOS {
                drive.inject(Fault::Timeout, 0);
            }
        })
    });
    drive.inject(Fault::Timeout, 0);
    let (sent, requeues) = (commands(name) - sent_before, requeues.stop() as u64);
    println!("{sent} commands for {IOS} I/Os, {requeues} requeues, {} scrapes", shown.len());
    assert!(fast_reads.len() > 3 && fast_reads.is_sorted_by(|one, next| one < next), "{fast_reads:?}");
    assert_eq!(sent, IOS + requeues);
    assert!(if end == End::Success { requeues >= 2 * IOS } else { requeues == IOS }, "{requeues}");
    // While the I/Os are requeued, none is in flight in the driver, so a scrape may not show them.
    let elsewhere = shown.iter().filter(|shown| (shown.reads, shown.writes) != (READS, WRITES)).count();
    assert!(elsewhere as u64 <= requeues / IOS, "{shown:?}");

    let after = settled(&daemon, name);
    for device in [name, &fast.name] {
        wait_until_clear(&daemon, device);
    }
    for _ in 0..5 {
        let shown = Shown::of(&daemon.fresh(), name);
        assert_eq!((shown.reads, shown.writes, shown.oldest), (0, 0, 0.0));
    }
    let growth = compare(name, &before, &after);
    assert_eq!((growth.of(READ), growth.of(WRITE), growth.missed), (READS, WRITES, 0));
    compare(&fast.name, &fast_before, &settled(&daemon, &fast.name)).assert_few_missed();
    assert_eq!(growth.value("biolat_requeues_total", &[]), requeues as f64);
    let (status, failed) = if end == End::Success { ("ok", 0) } else { ("ioerr", IOS) };
    for (counter, labels) in [
        ("biolat_failed_ios_total", None),
        ("biolat_io_errors_total", None),
        ("biolat_io_errors_total", Some(status)),
    ] {
        let labels: Vec<_> = labels.map(|status| ("status", status)).into_iter().collect();
        assert_eq!(growth.value(counter, &labels), failed as f64, "{counter} {labels:?}");
    }

    let mut records = slow_ios(&daemon, name);
    records.sort_by_key(|record| record.sector);
    assert_eq!(records.len() as u64, IOS, "{records:?}");
    for ((record, io), number) in records.iter().zip(&ios).zip(0..) {
        let op = if number < READS { "read" } else { "write" };
        let found = (record.sector, record.bytes.into(), record.op.as_str(), &*record.status);
        assert_eq!(found, (number << 11, BLOCK, op, io.status()));
        assert_eq!(io.status(), status);
        let total = record.latencies[Phase::Total as usize].unwrap().as_secs_f64();
        println!("{total:.3} s, the thread measured {:.3} s: {found:?}", io.seconds);
        assert!(total >= 2.0 * TIMEOUT, "{total} s");
        assert!((io.seconds - TOLERANCE..=io.seconds).contains(&total), "{total} s");
    }
    for group in [READ, WRITE] {
        let accounted = after.diskstats.seconds(group) - before.diskstats.seconds(group);
        let measured = growth.seconds("total", group.name);
        assert!(
            (accounted - measured).abs() < 0.05,
            "{}: measured {measured} s, accounted {accounted} s",
            group.name
        );
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn retried_commands_are_in_flight_until_they_end() {
    check_io_is_in_flight_until_it_ends(End::Success);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn failed_commands_are_in_flight_until_they_end() {
    check_io_is_in_flight_until_it_ends(End::Failure);
}
