//! Devices that appear and disappear.

use std::{thread, time::Duration};

use biolat_collect::collector::Collector;
use biolat_model::device::Selection;
use biolat_probe::Options;
use biolat_system::host::Host;

use crate::support::{
    awake::Awake,
    block::attribute,
    bpf_file_system::BpfFileSystem,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    figures::Figures,
    kernel::{self, Ability},
    load::Target,
    loop_device::LoopDevice,
    settled::settled,
};

fn reads(figures: &Figures, device: &str) -> Option<u64> {
    figures.histogram("total", device, "read").map(|histogram| histogram.sample_count)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn reused_device_number_is_new_series() {
    let device = LoopDevice::attach("lives", true);
    let name = device.name.as_str();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", name]);
    let _awake = Awake::all_cpus();
    let info = [("device", name)];

    Target::open(&device.path()).read(1000);
    let first = settled(&daemon, name).figures;
    assert!(reads(&first, name).unwrap() + first.missed(name) >= 1000);
    let sequence = first.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(sequence, attribute(name, "diskseq"));

    device.detach();
    wait_for("the series to end", || reads(&daemon.fresh(), name).is_none());
    let gone = daemon.fresh();
    assert!(gone.metrics("biolat_device_info", &info).is_empty());
    assert!(gone.metrics("biolat_io_bytes_total", &info).is_empty());

    // A loop device's disk statistics carry over from one file to the next; the series starts over.
    let before = Stat::of(name).completions(READ);
    device.attach_another("b");
    Target::open(&device.path()).read(77);
    wait_for("the new series", || reads(&daemon.fresh(), name).is_some());
    let second = settled(&daemon, name);
    let (counted, missed) = (reads(&second.figures, name).unwrap(), second.figures.missed(name));
    assert_eq!(counted + missed, second.diskstats.completions(READ) - before);
    assert!(missed <= 1, "{missed} missed");
    assert_eq!(second.figures.lost("no_room") + second.figures.lost("unknown_device"), 0);
    let now = second.figures.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(now, attribute(name, "diskseq"));
    assert_eq!(now != sequence, kernel::has(Ability::DiskSequences));
    assert_eq!(second.figures.metrics("biolat_device_info", &info).len(), 1);
}

/// Covers devices that disappear while a daemon runs, and between two daemons.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn does_not_log_removal_of_hidden_devices() {
    let bpf = BpfFileSystem::mount("gone-bpf");
    let [shown, hidden] = ["gone-shown", "gone-hidden"].map(|name| LoopDevice::attach(name, true));
    let start = || {
        let pin = bpf.path().to_str().unwrap();
        let daemon = Daemon::start(&["--interval", "100ms", "--device", &shown.name, "--pin", pin]);
        daemon.fresh();
        daemon
    };
    let detach_both = || [&hidden, &shown].into_iter().for_each(LoopDevice::detach);
    let attach_both = || [&hidden, &shown].into_iter().for_each(|device| device.attach_another("again"));
    let assert_one_is_logged = |daemon: &Daemon| {
        let is_logged = |name: &str| {
            let end = format!("device {name} is gone");
            daemon.log().iter().any(|line| line.ends_with(&end))
        };
        wait_for("the line of the shown device", || is_logged(&shown.name));
        daemon.fresh();
        assert!(!is_logged(&hidden.name), "{:#?}", daemon.log());
    };
    let daemon = start();
    detach_both();
    assert_one_is_logged(&daemon);
    attach_both();
    wait_for("the shown device", || daemon.fresh().has_device(&shown.name));
    drop(daemon);
    detach_both();
    assert_one_is_logged(&start());
}

/// Without uevents, the collection that finds the replacement also finds that the original device is gone.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn collection_that_finds_device_gone_does_not_count_it() {
    if kernel::is_skipped_without(Ability::DiskSequences) {
        return;
    }
    let device = LoopDevice::attach("unnoticed", true);
    let host = Host::default();
    let selection = Selection::new(Some(&device.name), None).unwrap();
    let mut collector = Collector::attach(host, selection, Options::default()).unwrap();
    Target::open(&device.path()).read(300);
    collector.collect().unwrap();
    let before = Stat::of(&device.name).completions(READ);
    device.detach();
    device.attach_another("b");
    Target::open(&device.path()).read(100);
    let completed = || Stat::of(&device.name).completions(READ) - before;
    wait_for("the disk statistics", || completed() >= 100);
    collector.collect().unwrap();
    // Longer than the time limit for unresolved devices.
    thread::sleep(Duration::from_millis(2200));
    collector.collect().unwrap();
    let snapshot = collector.collect().unwrap();
    assert_eq!(snapshot.lost["unknown_device"], 0);
    let view = snapshot.devices.iter().find(|view| view.device.name == device.name).unwrap();
    let reads = view.series.iter().find(|series| series.op == "read").unwrap();
    assert_eq!(reads.histograms[2].count(), completed());
}
