//! CPUs that come online after the daemon has started, and CPUs that go offline.

use std::{fs, thread};

use crate::support::{
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    fd_store::FdStore,
    figures::Figures,
    load::{Target, pin_to_cpu},
    null_blk::NullBlk,
};

/// The last CPU, offline until this is dropped.
struct Offline;

impl Offline {
    fn begin() -> Self {
        set_online(false);
        Self
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        set_online(true);
    }
}

fn set_online(online: bool) {
    fs::write("/sys/devices/system/cpu/cpu1/online", if online { "1" } else { "0" }).unwrap();
}

/// Reads on a CPU. The null_blk device completes a request on the CPU that submits it.
fn read_on(cpu: usize, disk: &NullBlk, reads: u64) {
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(cpu);
            Target::open(&disk.path()).read(reads);
        });
    });
}

fn next_collection(daemon: &Daemon) -> Figures {
    let last = Figures::scrape(daemon.address).taken();
    wait_for("the next collection", || Figures::scrape(daemon.address).taken() > last);
    Figures::scrape(daemon.address)
}

/// Until the next collection, completions on the new CPU are lost, and counted as such; then it has counters. They stay when it
/// goes offline again, and the next daemon continues them.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn cpu_that_comes_online_gets_counters() {
    let disk = NullBlk::in_memory(&[("submit_queues", "1"), ("irqmode", "0")]);
    let name = disk.name.as_str();
    let offline = Offline::begin();
    let store = FdStore::new("hotplug-store");
    let arguments = ["--interval", "3s", "--device", name];
    let mut daemon = Daemon::start_command(&mut store.command(&arguments));
    let before = next_collection(&daemon);
    let began = Stat::of(name).completions(READ) - before.count(name, READ);
    let memory = before.value("biolat_map_bytes", &[]);
    read_on(0, &disk, 100);
    drop(offline);
    read_on(1, &disk, 50);
    let lost = next_collection(&daemon);
    assert_eq!((lost.count(name, READ) - before.count(name, READ), lost.lost("no_room")), (100, 50));
    assert!(lost.value("biolat_map_bytes", &[]) > 1.5 * memory);
    read_on(1, &disk, 70);
    read_on(0, &disk, 10);
    let offline = Offline::begin();
    read_on(0, &disk, 20);
    daemon.terminate();
    read_on(0, &disk, 5);
    daemon = Daemon::start_command(&mut store.command(&arguments));
    drop(offline);
    read_on(1, &disk, 7);
    let after = next_collection(&daemon);
    assert_eq!((after.count(name, READ) - before.count(name, READ), after.lost("no_room")), (212, 50));
    assert_eq!(Stat::of(name).completions(READ), after.count(name, READ) + 50 + began);
    assert_eq!(after.missed(name), 0);
}
