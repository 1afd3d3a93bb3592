//! CPUs that come online after the daemon has started, and CPUs that go offline.

use std::{fs, os::fd::AsFd as _};

use biolat_common::slot::array_index;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};

use crate::support::{
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    fd_store::FdStore,
    figures::Figures,
    null_blk::NullBlk,
    offline_cpus::{OfflineCpus, read_on},
};

const LAST_CPU: &[usize] = &[1];

fn disk() -> NullBlk {
    NullBlk::in_memory(&[("submit_queues", "1"), ("irqmode", "0")])
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
    let disk = disk();
    let name = disk.name.as_str();
    let offline = OfflineCpus::begin(LAST_CPU);
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
    let offline = OfflineCpus::begin(LAST_CPU);
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

/// Lets a process open only two more files.
fn nearly_forbid_files(pid: u32) -> Rlimit {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut open: Vec<u64> =
        folder.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    open.sort_unstable();
    let mut free = (0..).filter(|number| open.binary_search(number).is_err());
    let last = free.nth(1).unwrap();
    limit_files(pid, Rlimit { current: Some(last + 1), ..getrlimit(Resource::Nofile) })
}

fn limit_files(pid: u32, limit: Rlimit) -> Rlimit {
    prlimit(Pid::from_raw(pid as i32), Resource::Nofile, limit).unwrap()
}

/// If there is room for only some of the counters of a new CPU, a later collection adds the others, even if an earlier daemon ended
/// while it was adding them.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn failed_counters_are_created_later() {
    let disk = disk();
    let name = disk.name.as_str();
    let offline = OfflineCpus::begin(LAST_CPU);
    let bpf = BpfFileSystem::mount("hotplug-bpf");
    let folder = bpf.path().to_str().unwrap();
    let start = || Daemon::start(&["--interval", "200ms", "--device", name, "--pin", folder]);
    drop(start());
    let first_file = bpf.probe().join(format!("maps-{}", 100 + array_index(0, 1)));
    let other = biolat_probe::open_pinned(&bpf.probe().join("maps-0")).unwrap();
    biolat_probe::pin(other.as_fd(), &first_file).unwrap();
    let daemon = start();
    let before = daemon.fresh().count(name, READ);
    let normal = nearly_forbid_files(daemon.pid());
    drop(offline);
    wait_for("a failure", || {
        daemon.log().iter().any(|line| line.contains("cannot create counters for CPUs that came online"))
    });
    read_on(1, &disk, 30);
    limit_files(daemon.pid(), normal);
    let lost = daemon.fresh();
    assert_eq!((lost.count(name, READ) - before, lost.lost("no_room")), (0, 30));
    read_on(1, &disk, 40);
    let after = daemon.fresh();
    assert_eq!((after.count(name, READ) - before, after.lost("no_room")), (40, 30));
    drop(daemon);
    read_on(1, &disk, 5);
    assert_eq!(start().fresh().count(name, READ) - before, 45);
}
