//! Ten thousand short-lived devices.

use std::{fs::OpenOptions, os::fd::AsRawFd as _, thread, time::Duration};

use crate::support::{
    daemon::{Daemon, wait_for},
    load::{self, Target},
    loop_device::LoopDevice,
    machine::{Resources, slots},
    settled::{compare, settled},
};

/// Attaches a file to a loop device, reads a block and detaches it, as often as that.
fn attach_and_detach(device: &LoopDevice, times: u32) {
    const SET_FD: libc::Ioctl = 0x4c00;
    const CLR_FD: libc::Ioctl = 0x4c01;
    device.detach();
    let file = device.file();
    for _ in 0..times {
        let target = Target::open(&device.path());
        let disk = OpenOptions::new().read(true).open(device.path()).unwrap();
        let control = |request, argument: i32| {
            // SAFETY: both take a number.
            let done = || unsafe { libc::ioctl(disk.as_raw_fd(), request, argument) } == 0;
            // Software that examines every new disk may keep it open for a moment.
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
        // Unresolved devices are waited for.
        thread::sleep(Duration::from_secs(3));
        let figures = settled(&daemon, name).figures;
        assert_eq!(figures.metrics("biolat_device_info", &[]).len(), 1);
        println!("no_room {}, unknown_device {}", figures.lost("no_room"), figures.lost("unknown_device"));
        Resources::of(&daemon, &figures)
    };
    let first = half();
    // Those from before, the device's ops, and as many spare slots again for unresolved devices and slots in quarantine.
    let most = before.slots as u64 + slots(4);
    assert!(first.slots <= most as f64, "{before:?}, then {first:?}, and at most {most}");
    let second = half();
    assert!(second.slots <= most as f64, "{second:?}, and at most {most}");
    second.assert_no_growth_since(&first);
    // The last device is counted as exactly as any.
    let before = settled(&daemon, name);
    load::mixed(&device.path());
    compare(name, &before, &settled(&daemon, name));
}
