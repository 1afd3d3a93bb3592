//! Devices that come and go.

use crate::support::{
    awake::Awake,
    books::READ,
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
    let (_, first) = settled(&daemon, name);
    assert!(reads(&first, name).unwrap() >= 1000);
    let sequence = first.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(sequence, device.attribute("diskseq"));

    device.detach();
    wait_for("the series to end", || reads(&daemon.fresh(), name).is_none());
    let gone = daemon.fresh();
    assert!(gone.metrics("biolat_device_info", &info).is_empty());
    assert!(gone.metrics("biolat_io_bytes_total", &info).is_empty());

    device.attach_another("b");
    wait_for("the new life", || reads(&daemon.fresh(), name).is_some());
    let born = settled(&daemon, name);
    // Whatever looks at a new disk reads it: what counts is that the first life's count is not there.
    let already = reads(&born.1, name).unwrap();
    assert!(already < 1000, "{already} reads in a new life");
    Target::open(&device.path()).read(77);
    let second = settled(&daemon, name);
    assert_eq!(
        reads(&second.1, name).unwrap() - already,
        second.0.completions(READ) - born.0.completions(READ)
    );
    assert_eq!(second.1.unseen(name), 0);
    assert_eq!(second.1.lost("no_room") + second.1.lost("unknown_device"), 0);
    let now = second.1.label("biolat_device_info", &info, "diskseq").unwrap();
    assert_eq!(now, device.attribute("diskseq"));
    assert_ne!(now, sequence);
    assert_eq!(second.1.metrics("biolat_device_info", &info).len(), 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn slots_are_used_again() {
    let device = LoopDevice::attach("slots", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let slots = |figures: &Figures| figures.value("biolat_series_slots", &[]);
    let before = slots(&daemon.fresh());
    for round in 0..30 {
        Target::open(&device.path()).read(10 + round);
        device.detach();
        wait_for("the series to end", || reads(&Figures::scrape(daemon.address), &device.name).is_none());
        device.attach_another(if round % 2 == 0 { "b" } else { "a" });
        wait_for("the new life", || reads(&Figures::scrape(daemon.address), &device.name).is_some());
    }
    let (_, after) = settled(&daemon, &device.name);
    // Thirty lives took sixty slots or more; a few more than before may be fallow at any moment.
    assert!(slots(&after) <= before + 16.0, "{} slots after thirty lives, {before} before", slots(&after));
    assert_eq!(after.lost("no_room"), 0);
}
