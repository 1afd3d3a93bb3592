//! NVMe over TCP: its completions run in kworkers, which share the CPUs with other tasks.

use std::thread;

use super::{
    LOAD, Reader, Refusals, Unthrottled, attach_understudy, compare, exceeds_loss_limit, interrupt_often,
};
use crate::support::{
    daemon::Daemon,
    load::{StopFlag, on_two_cpus},
    nvme_tcp::TwoPaths,
    settled::settled,
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_over_tcp_on_busy_cpus() {
    let _unthrottled = Unthrottled::new();
    let device = TwoPaths::fast();
    let paths = device.paths.each_ref().map(String::as_str);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", "nvme.*"]);
    let refusals = Refusals::of(&daemon);
    // Completions refused before this are lost, including commands without a disk, which are not in the disk statistics.
    attach_understudy(&daemon);
    let refused_before = refusals.read();
    let before = paths.map(|path| settled(&daemon, path));
    let stop = StopFlag::default();
    thread::scope(|scope| {
        let _stop = stop.set_on_drop();
        scope.spawn(|| {
            on_two_cpus(|cpu| {
                let cpu = cpu as usize;
                thread::scope(|scope| {
                    scope.spawn(|| interrupt_often(cpu, &stop));
                    for _ in 0..2 {
                        scope.spawn(|| Reader::open(&device.head).read_until(&stop));
                        scope.spawn(|| compute(&stop));
                    }
                });
            });
        });
        thread::sleep(LOAD);
    });
    let growth = compare(&daemon, &paths, &before);
    let refused = refusals.read() - refused_before;
    println!("{refused} refused of {}, {growth:?}", growth.completions);
    assert!(growth.completions > 500, "the load is too light: {growth:?}");
    assert!(!exceeds_loss_limit(growth.lost, growth.completions), "{growth:?}");
}

/// Uses as much CPU time as it can get.
fn compute(stop: &StopFlag) {
    while !stop.is_set() {
        std::hint::spin_loop();
    }
}
