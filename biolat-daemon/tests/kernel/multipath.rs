//! Multipath devices with a failing path.

use std::thread;

use crate::{
    preemption::attach_understudy,
    support::{
        block,
        daemon::{Daemon, wait_for},
        diskstats::{Fields, READ, Stat, WRITE},
        dm::Mapped,
        figures::Figures,
        load::{StopFlag, read_and_write},
        nvme_tcp::TwoPaths,
        run,
        scsi_debug::ScsiDebug,
        settled::{Moment, settled},
    },
};

const BLOCK: u64 = 4096;
const READ_AND_WRITE: [Fields; 2] = [READ, WRITE];

/// Returns a label of a path.
fn label(figures: &Figures, path: &str, name: &str) -> String {
    figures.label("biolat_path_info", &[("device", path)], name).unwrap_or_default()
}

fn wait_for_states(daemon: &Daemon, paths: &[String; 2], expected: [&str; 2]) {
    wait_for(&format!("the states {expected:?}"), || {
        let figures = Figures::scrape(daemon.address);
        paths.each_ref().map(|path| label(&figures, path, "state")) == expected
    });
}

fn wait_for_completions(path: &str, count: u64) {
    let before = Stat::of(path).all_completions();
    wait_for(&format!("I/O on {path}"), || Stat::of(path).all_completions() >= before + count);
}

/// Fails the second path under load and restores it: no call fails, and all I/O is accounted for. Returns the number of requests
/// that the kernel moved from the failed path to the other one.
fn check_failover(fail: impl Fn(&TwoPaths), state: &str, restore: impl Fn(&TwoPaths)) -> u64 {
    let device = TwoPaths::connect();
    let paths = &device.paths;
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nvme.*"]);
    // Interrupts can make the kernel refuse to run the probe for a completion, even of a command that is not counted.
    attach_understudy(&daemon);
    let before = paths.each_ref().map(|path| settled(&daemon, path));
    for (path, Moment { figures, .. }) in paths.iter().zip(&before) {
        assert_eq!(
            ["path_of", "transport", "state"].map(|name| label(figures, path, name)),
            [device.head.as_str(), "tcp", "live"]
        );
        let address = label(figures, path, "address");
        assert!(address.starts_with("traddr=127.0.0.1,trsvcid="), "{address}");
    }

    let stop = StopFlag::default();
    let calls = thread::scope(|scope| {
        let stopper = stop.set_on_drop();
        let load = scope.spawn(|| read_and_write(&block::path(&device.head), &stop));
        paths.iter().for_each(|path| wait_for_completions(path, 50));
        wait_for("requests in flight", || Stat::of(&paths[1]).in_flight() >= 4);
        fail(&device);
        wait_for_states(&daemon, paths, ["live", state]);
        wait_for("the last completion on the failed path", || Stat::of(&paths[1]).in_flight() == 0);
        let failed = Stat::of(&paths[1]);
        wait_for_completions(&paths[0], 100);
        assert_eq!(Stat::of(&paths[1]), failed, "I/O on a path that is not live");
        restore(&device);
        wait_for_states(&daemon, paths, ["live"; 2]);
        wait_for_completions(&paths[1], 50);
        drop(stopper);
        load.join().unwrap()
    });

    // The kernel takes the data from a request in flight on the failed path, completes the request successfully with no bytes
    // left, and sends the data over the other path. The disk statistics count that completion; the probe does not.
    let (mut completions, mut bytes, mut counted, mut audited, mut lost, mut excused) = (0, 0, 0, 0, 0, 0);
    for (path, before) in paths.iter().zip(&before) {
        let after = settled(&daemon, path);
        let growth = |figure: fn(&Moment, &str) -> u64| figure(&after, path) - figure(before, path);
        completions += growth(|moment, _| moment.diskstats.all_completions());
        bytes += growth(|moment, _| {
            READ_AND_WRITE.map(|group| moment.diskstats.bytes(group).unwrap()).iter().sum()
        });
        counted +=
            growth(|moment, path| READ_AND_WRITE.map(|group| moment.figures.count(path, group)).iter().sum());
        audited += growth(|moment, path| moment.figures.missed(path));
        lost = growth(|moment, _| moment.figures.lost("recursion"));
        // The audit does not know what kind of completions were lost earlier, so it excuses that many reads and that many writes
        // on each path.
        excused = 4 * after.figures.lost("recursion");
        let errors = after.figures.metrics("biolat_io_errors_total", &[("device", path)]);
        assert!(
            errors.iter().all(|metric| metric.counter.as_ref().unwrap().value == 0.0),
            "{path}: {errors:?}"
        );
    }
    let failed_over = completions - calls;
    println!(
        "{calls} calls, {failed_over} requests failed over, {counted} counted, {audited} missed, {lost} lost"
    );
    assert_eq!(bytes, calls * BLOCK);
    assert_eq!(lost, 0);
    assert!(counted <= calls, "an I/O was counted twice");
    let missed = audited.saturating_sub(failed_over);
    assert!(counted + missed >= calls, "an I/O is missing");
    assert!(counted + audited <= completions && counted + audited + excused >= completions);
    failed_over
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn path_loses_connection_under_load() {
    let failed_over = check_failover(TwoPaths::disconnect_second, "connecting", TwoPaths::reconnect_second);
    assert!(failed_over > 0, "nothing was in flight on the path");
}

/// Asymmetric namespace access (ANA): the controller is live, but has no access to the namespace.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn path_loses_access_under_load() {
    check_failover(
        |device| device.set_access_of_second("inaccessible"),
        "inaccessible",
        |device| device.set_access_of_second("optimized"),
    );
}

/// The kernel's counts of failovers and reconnects, in sysfs files that root can reset.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_events_grow_on_failover() {
    const FAILOVERS: &str = "diag/multipath_failover_count";
    let device = TwoPaths::connect();
    let [_, path] = &device.paths;
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nvme.*"]);
    daemon.fresh();
    let events = |event: &str| nvme_events(&daemon, path, event);
    let requeues = || nvme_events(&daemon, &device.head, "requeue_without_path");
    if block::attribute(path, FAILOVERS).is_empty() {
        assert!(daemon.fresh().metrics("biolat_nvme_events_total", &[]).is_empty());
        println!("this kernel does not count NVMe events");
        return;
    }
    let kernel = |file: &str| block::number(path, file);
    let in_flight = || Stat::of(path).in_flight() >= 4;
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stopper = stop.set_on_drop();
        scope.spawn(|| read_and_write(&block::path(&device.head), &stop));
        wait_for("requests in flight", in_flight);
        device.disconnect_second();
        wait_for("the failover", || kernel(FAILOVERS) > 0);
        device.reconnect_second();
        wait_for("the path to be live", || label(&daemon.fresh(), path, "state") == "live");
        wait_for_completions(path, 50);
        let failovers = kernel(FAILOVERS);
        assert_eq!(events("failover"), failovers);
        assert_eq!(events("reconnect"), kernel("device/diag/reconnect_count"));
        assert!(events("reconnect") > 0 && events("reset") == kernel("device/diag/reset_count"));

        block::set_attribute(path, FAILOVERS, "0");
        assert_eq!((kernel(FAILOVERS), events("failover")), (0, failovers));
        wait_for("requests in flight", in_flight);
        device.disconnect_second();
        wait_for("another failover", || kernel(FAILOVERS) > 0);
        device.reconnect_second();
        wait_for("the path to be live", || label(&daemon.fresh(), path, "state") == "live");
        assert_eq!(events("failover"), failovers + kernel(FAILOVERS));

        // Both paths lose their access, so I/O waits without one.
        assert_eq!(requeues(), 0);
        device.set_access("inaccessible");
        wait_for("I/O without a path", || requeues() > 0);
        device.set_access("optimized");
        wait_for("the paths to be live", || label(&daemon.fresh(), path, "state") == "live");
    });
    assert_eq!(requeues(), block::number(&device.head, "diag/io_requeue_no_usable_path_count"));
}

/// The value of `biolat_nvme_events_total` for a device and an event.
fn nvme_events(daemon: &Daemon, device: &str, event: &str) -> u64 {
    let figures = daemon.fresh();
    let found = figures.metrics("biolat_nvme_events_total", &[("device", device), ("event", event)]);
    found.first().map_or(0, |metric| metric.counter.as_ref().unwrap().value as u64)
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn dm_multipath_path_goes_offline() {
    for module in ["dm-multipath", "dm-round-robin"] {
        run("modprobe", &[module]);
    }
    let Some(drive) = ScsiDebug::load() else { return };
    let table = format!("0 2048 multipath 0 0 1 1 round-robin 0 1 1 /dev/{} 1", drive.name);
    let mapped = Mapped::multipath("offline", &table);
    let daemon = Daemon::of(&drive.name);
    let figures = daemon.fresh();
    let state = || label(&Figures::scrape(daemon.address), &drive.name, "state");
    assert_eq!((label(&figures, &drive.name, "path_of"), state()), (mapped.name.clone(), "live".to_owned()));
    assert!(label(&figures, &drive.name, "address").ends_with(":0:0:0"), "host:channel:target:lun");
    // The kernel requires the newline.
    block::set_attribute(&drive.name, "device/state", "offline\n");
    wait_for("the path to be offline", || state() == "offline");
    block::set_attribute(&drive.name, "device/state", "running\n");
    wait_for("the path to be live", || state() == "live");
    drop(mapped);
    wait_for("the drive to be no path any longer", || state().is_empty());
}
