//! Devices that come and go.

use std::thread;

use crate::support::{
    awake::Awake,
    block::attribute,
    books::{READ, Stat},
    daemon::{Daemon, wait_for},
    figures::Figures,
    load::Target,
    loop_device::LoopDevice,
    settled::settled,
};

fn reads(figures: &Figures, device: &str) -> Option<u64> {
    figures.histogram("total", device, "read").map(|histogram| histogram.sample_count)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn another_file_at_the_same_number_is_another_life() {
    let device = LoopDevice::attach("lives", true);
    let name = device.name.as_str();
    let daemon = Daemon::start(&["--interval", "100ms", "--device", name]);
    let _awake = Awake::all_cpus();
    let info = [("device", name)];

    Target::open(&device.path()).read(1000);
    let first = settled(&daemon, name).figures;
    assert!(reads(&first, name).unwrap() >= 1000);
    let sequence = first.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(sequence, attribute(&device.name, "diskseq"));

    device.detach();
    wait_for("the series to end", || reads(&daemon.fresh(), name).is_none());
    let gone = daemon.fresh();
    assert!(gone.metrics("biolat_device_info", &info).is_empty());
    assert!(gone.metrics("biolat_io_bytes_total", &info).is_empty());

    // The books of a loop device go on from one file to the next; the series begins anew.
    let before = Stat::of(name).completions(READ);
    device.attach_another("b");
    Target::open(&device.path()).read(77);
    wait_for("the new life", || reads(&daemon.fresh(), name).is_some());
    let second = settled(&daemon, name);
    assert_eq!(reads(&second.figures, name), Some(second.books.completions(READ) - before));
    assert_eq!(second.figures.unseen(name), 0);
    assert_eq!(second.figures.lost("no_room") + second.figures.lost("unknown_device"), 0);
    let now = second.figures.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(now, attribute(&device.name, "diskseq"));
    assert_ne!(now, sequence);
    assert_eq!(second.figures.metrics("biolat_device_info", &info).len(), 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn slots_are_used_again() {
    let device = LoopDevice::attach("slots", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let slots = |figures: &Figures| figures.value("biolat_series_slots", &[]);
    let _awake = Awake::all_cpus();
    let before = slots(&daemon.fresh());
    // More lives than there are slots, so that each slot has had some.
    for round in 0..80 {
        device.detach();
        wait_for("the series to end", || reads(&Figures::scrape(daemon.address), &device.name).is_none());
        let booked = Stat::of(&device.name).completions(READ);
        device.attach_another(if round % 2 == 0 { "b" } else { "a" });
        // From two CPUs at once, so that both may find that there is no series yet.
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| Target::open(&device.path()).read(10 + round));
            }
        });
        let of_this_life = || Stat::of(&device.name).completions(READ) - booked;
        wait_for("the new life's reads, all of them and no more", || {
            reads(&Figures::scrape(daemon.address), &device.name) == Some(of_this_life())
        });
    }
    let after = settled(&daemon, &device.name).figures;
    // A few more than before may be fallow at any moment.
    assert!(slots(&after) <= before + 16.0, "{} slots after eighty lives, {before} before", slots(&after));
    assert_eq!(after.lost("no_room"), 0);
}
