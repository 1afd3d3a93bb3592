//! A device disappears while a probe run for it is preempted. Its slots are not reused until that run has ended; otherwise the
//! run's counts would appear in another device's series.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::{
    CPU, Reader, Refusals, Unthrottled, become_realtime, in_task, interrupt_probe, load, preempts_programs,
    read_on_cpu, set_preemption, wait_for_refusal,
};
use crate::support::{
    Folder, block,
    daemon::{Daemon, wait_for},
    diskstats::{DISCARD, READ, WRITE},
    figures::Figures,
    kernel,
    load::{StopFlag, Target, pin_to_cpu},
    null_blk::NullBlk,
};

/// Number of devices whose discards take the free slots.
const OTHERS: usize = 24;
/// Number of rounds after which every free slot has been used.
const ROUNDS_OF_SLOTS: usize = 3;

/// A synthetic `/sys` whose block devices come and go.
struct Sysfs(Folder);

impl Sysfs {
    fn new() -> Self {
        let folder = Folder::new("removal-sysfs", true);
        for entry in fs::read_dir("/sys").unwrap().map(|entry| entry.unwrap()) {
            if entry.file_name() != "block" {
                symlink(entry.path(), folder.0.join(entry.file_name())).unwrap();
            }
        }
        fs::create_dir(folder.0.join("block")).unwrap();
        Self(folder)
    }

    fn add(&self, device: &str) {
        symlink(format!("/sys/block/{device}"), self.0.0.join("block").join(device)).unwrap();
    }

    fn remove(&self, device: &str) {
        fs::remove_file(self.0.0.join("block").join(device)).unwrap();
    }
}

/// Triggers a uevent, which makes the daemon scan the devices.
fn announce(device: &NullBlk) {
    block::set_attribute(&device.name, "uevent", "change");
}

fn count_removals(daemon: &Daemon, device: &NullBlk) -> usize {
    let line = format!("device {} is gone", device.name);
    daemon.log().iter().filter(|logged| logged.contains(&line)).count()
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn device_removed_during_preempted_run() {
    if !preempts_programs() {
        return kernel::skip("this kernel does not preempt the probe");
    }
    let rounds = std::env::var("BIOLAT_TEST_REMOVALS").map_or(20, |rounds| rounds.parse().unwrap());
    set_preemption("full");
    let _unthrottled = Unthrottled::without_fair_server();
    // Everything except the reader and the task that interrupts it must be able to keep running.
    pin_to_cpu(1 - CPU);
    let (victim, canary) = (in_task(), in_task());
    let settings = [("irqmode", "0"), ("submit_queues", "2"), ("size", "16")];
    let others: Vec<_> = (0..OTHERS).map(|_| NullBlk::in_memory(&settings)).collect();
    let sysfs = Sysfs::new();
    sysfs.add(&canary.name);
    let path = sysfs.0.0.to_str().unwrap();
    let daemon =
        Daemon::start(&["--interval", "100ms", "--device", "nullb.*", "--workloads", "off", "--sysfs", path]);
    let refusals = Refusals::of(&daemon);
    // With the understudy attached, the daemon waits for probe runs to end.
    load(&[&canary.name, &victim.name], &Reader::open, || wait_for_refusal(&daemon));
    let mut wrong = Vec::new();
    for round in 0..rounds + ROUNDS_OF_SLOTS {
        let before = Figures::scrape(daemon.address).lost("no_room");
        others.iter().chain([&victim]).for_each(|device| sysfs.add(&device.name));
        announce(&canary);
        wait_for("the devices", || {
            let figures = Figures::scrape(daemon.address);
            others.iter().chain([&victim]).all(|device| figures.has_device(&device.name))
        });
        let discard = || others.iter().for_each(|device| Target::open(&device.path()).discard(0, 1));
        let removals = count_removals(&daemon, &victim);
        let remove = || {
            sysfs.remove(&victim.name);
            announce(&canary);
            wait_for("the removal", || count_removals(&daemon, &victim) > removals);
            // Longer than any wait that the daemon might wrongly consider sufficient.
            thread::sleep(Duration::from_millis(200));
            discard();
        };
        if round < rounds {
            hold_probe(&victim, &canary, &refusals, remove);
        } else {
            remove();
        }
        let figures = daemon.fresh();
        let lost = figures.lost("no_room") - before;
        for device in &others {
            let name = device.name.as_str();
            let counts = [READ, WRITE, DISCARD].map(|group| figures.count(name, group));
            if counts != [0, 0, 1] && (counts, lost) != ([0, 0, 0], 1) {
                wrong.push(format!("round {round}: {counts:?} of {name}"));
            }
        }
        others.iter().for_each(|device| sysfs.remove(&device.name));
        announce(&canary);
        wait_for("no device", || {
            let figures = Figures::scrape(daemon.address);
            !others.iter().any(|device| figures.has_device(&device.name))
        });
    }
    println!("{rounds} devices disappeared during a preempted run of the probe for them: {wrong:#?}");
    assert!(wrong.is_empty(), "wrong reads, writes and discards of devices with one discard each");
}

/// Holds up a probe run for the victim while `meanwhile` runs.
fn hold_probe(victim: &NullBlk, canary: &NullBlk, refusals: &Refusals, meanwhile: impl FnOnce()) {
    let stop = StopFlag::default();
    let (held, released) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        scope.spawn(|| read_on_cpu(&mut Reader::open(&victim.name), &stop));
        let holder = scope.spawn(|| {
            pin_to_cpu(CPU);
            become_realtime();
            let is_held = interrupt_probe(&mut Reader::open(&canary.name), refusals, 5_000);
            held.store(is_held, Ordering::Release);
            while is_held && !released.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
        });
        while !held.load(Ordering::Acquire) && !holder.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        assert!(held.load(Ordering::Acquire), "no run of the probe was preempted");
        let _released = Released(&released);
        meanwhile();
        // Stops the reader first, so the held run counts last.
        drop(stopper);
    });
}

/// Lets the held run continue, even if the test panics.
struct Released<'a>(&'a AtomicBool);

impl Drop for Released<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
