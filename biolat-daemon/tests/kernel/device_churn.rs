//! Many short-lived devices.

use std::{fs::OpenOptions, os::fd::AsRawFd as _, thread, time::Duration};

use crate::support::{
    awake::Awake,
    block::attribute,
    daemon::{Daemon, wait_for},
    diskstats::{READ, Stat},
    figures::Figures,
    load::{self, Target},
    loop_device::LoopDevice,
    machine::{Resources, slots},
    settled::{compare, settled},
};

/// Attaches a file to a loop device, reads a block and detaches the file, this many times.
fn attach_and_detach(device: &LoopDevice, times: u32) {
    const SET_FD: libc::Ioctl = 0x4c00;
    const CLR_FD: libc::Ioctl = 0x4c01;
    device.detach();
    let file = device.file();
    for _ in 0..times {
        let target = Target::open(&device.path());
        let disk = OpenOptions::new().read(true).open(device.path()).unwrap();
        let control = |request, argument: i32| {
            // SAFETY: both ioctls take a number.
            let done = || unsafe { libc::ioctl(disk.as_raw_fd(), request, argument) } == 0;
            // Software that examines every new disk can keep this one open for a moment.
            wait_for("the loop device", done);
        };
        control(SET_FD, file.as_raw_fd());
        target.try_read_at(0, 4096).unwrap();
        control(CLR_FD, 0);
    }
    device.attach_another("a");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn ten_thousand_devices_leave_nothing_behind() {
    let device = LoopDevice::attach("storm", true);
    let name = device.name.as_str();
    let daemon = Daemon::of(name);
    let before = Resources::of(&daemon, &daemon.fresh());
    let half = || {
        attach_and_detach(&device, 5000);
        // Collections wait for unresolved devices to get a name.
        thread::sleep(Duration::from_secs(3));
        let figures = settled(&daemon, name).figures;
        assert_eq!(figures.metrics("biolat_device_info", &[]).len(), 1);
        println!("no_room {}, unknown_device {}", figures.lost("no_room"), figures.lost("unknown_device"));
        Resources::of(&daemon, &figures)
    };
    let first = half();
    // The initial slots, the device's ops, and the spare slots for unresolved devices and quarantine.
    let most = before.slots as u64 + slots(4);
    assert!(first.slots <= most as f64, "{before:?}, then {first:?}, expected {most} at most");
    let second = half();
    assert!(second.slots <= most as f64, "{second:?}, expected {most} at most");
    second.assert_no_growth_since(&first);
    // The last device is counted exactly.
    let before = settled(&daemon, name);
    load::mixed(&device.path());
    compare(name, &before, &settled(&daemon, name));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn slots_are_reused() {
    let device = LoopDevice::attach("slots", true);
    let daemon = Daemon::start(&["--interval", "100ms", "--device", &device.name]);
    let slots = |figures: &Figures| figures.value("biolat_series_slots", &[]);
    let reads = |figures: &Figures| {
        figures.histogram("total", &device.name, "read").map(|histogram| histogram.sample_count)
    };
    let _awake = Awake::all_cpus();
    let before = slots(&daemon.fresh());
    let mut rounds_with_missed = 0;
    // More series than slots, so each slot is used several times.
    for round in 0..80 {
        device.detach();
        wait_for("the series to end", || reads(&Figures::scrape(daemon.address)).is_none());
        let accounted = Stat::of(&device.name).completions(READ);
        device.attach_another(if round % 2 == 0 { "b" } else { "a" });
        let sequence = attribute(&device.name, "diskseq");
        // From here on the device is audited, which finds completions for which the kernel ran no BPF program.
        wait_for("the new series", || {
            let info = [("device", device.name.as_str()), ("diskseq", sequence.as_str())];
            !Figures::scrape(daemon.address).metrics("biolat_device_info", &info).is_empty()
        });
        // Reads from two CPUs at once, so both can find the series missing.
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| Target::open(&device.path()).read(10 + round));
            }
        });
        let of_this_life = Stat::of(&device.name).completions(READ) - accounted;
        let figures = daemon.fresh();
        let (counted, missed) = (reads(&figures).unwrap_or(0), figures.missed(&device.name));
        assert_eq!(counted + missed, of_this_life, "round {round}: {counted} counted, {missed} missed");
        rounds_with_missed += u32::from(missed > 0);
    }
    // With all CPUs awake, the kernel rarely skips programs; a bug would show up more often.
    assert!(rounds_with_missed <= 2, "missed completions in {rounds_with_missed} of 80 rounds");
    let after = settled(&daemon, &device.name).figures;
    // A few more slots can be in quarantine at any time.
    assert!(slots(&after) <= before + 16.0, "{} slots after 80 rounds, {before} before", slots(&after));
    assert_eq!(after.lost("no_room"), 0);
}
