//! Requests that fail, and commands that are no block I/O.

use std::{fs, path::Path, thread};

use biolat_daemon::{host::Host, probe::release::Release};

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::READ,
    figures::Figures,
    load::{self, Target},
    null_blk::NullBlk,
    passthrough::{nvme_identify, nvme_io, scsi_inquiry},
    scsi_debug::{Fault, ScsiDebug},
    settled::{compare, settled},
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn a_medium_error_counts_once_under_its_name() {
    let drive = ScsiDebug::load();
    let daemon = Daemon::of(&drive.name);
    // From then on its series is known, and what is in order goes the short way through the probe.
    Target::open(&block::path(&drive.name)).read(1);
    let before = settled(&daemon, &drive.name);
    drive.inject(Fault::Medium, 1);
    // The bad sectors lie in the midst of one of these: the kernel ends its good part first.
    load::on_two_cpus(|_| {
        let target = Target::open(&block::path(&drive.name));
        for number in 0..20 {
            let outcome = target.try_read_at((0x1210 + number * 32) * 512, 8192);
            assert_eq!(outcome.is_err(), number == 1, "{number}: {outcome:?}");
        }
    });
    drive.inject(Fault::Medium, 0);
    let after = settled(&daemon, &drive.name);
    let growth = compare(&drive.name, &before, &after);
    assert_eq!((growth.of(READ), growth.unseen), (40, 0));
    assert_eq!(after.figures.errors(&drive.name, "read", "medium"), 2);
    assert_eq!(all_errors(&after.figures, &drive.name), 2);
}

fn all_errors(figures: &Figures, device: &str) -> u64 {
    figures.value("biolat_io_errors_total", &[("device", device)]) as u64
}

/// A device that takes 2.5 s, and a kernel that gives it a tenth of one and then up to a second, as it rounds.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn a_timeout_counts_once_under_its_name() {
    let disk = NullBlk::with_latency(2_500_000_000, &[("submit_queues", "2")]);
    block::set_attribute(&disk.name, "queue/io_timeout", "100");
    let daemon = Daemon::of(&disk.name);
    let before = settled(&daemon, &disk.name);
    thread::scope(|scope| {
        for number in 0..4 {
            let target = Target::open(&disk.path());
            scope.spawn(move || target.try_read_at(number << 20, 4096).unwrap_err());
        }
    });
    let after = settled(&daemon, &disk.name);
    let growth = compare(&disk.name, &before, &after);
    assert_eq!((growth.of(READ), growth.unseen), (4, 0));
    assert_eq!(after.figures.errors(&disk.name, "read", "timeout"), 4);
    assert_eq!(all_errors(&after.figures, &disk.name), 4);
    let seconds = growth.seconds("device", "read");
    assert!((10.0..12.0).contains(&seconds), "{seconds} s for four times 2.5 s");
}

/// Which kernels stamp commands that are no block I/O, and so give them a latency, without being asked to.
fn passthrough_is_stamped() -> bool {
    Release::of(&Host { sysfs: "/sys".into(), procfs: "/proc".into() }).unwrap() < Release(6, 8)
}

/// What these commands came to: in histograms, and lost for their reason.
fn of_passthrough(device: &str, op: &str, commands: u64, send: impl FnOnce()) {
    let daemon = Daemon::of(device);
    let before = settled(&daemon, device);
    send();
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    let counted = growth.latencies("total", op);
    let lost = growth.lost("passthrough");
    let expected = if passthrough_is_stamped() { (commands, 0) } else { (0, commands) };
    assert_eq!((counted, lost), expected, "{op}: counted and lost");
    assert_eq!(after.figures.unseen(device), 0);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_io_commands_are_driver_commands_of_the_namespace() {
    let name = block::device_with("device/serial", "solo");
    let path = block::path(&name);
    of_passthrough(&name, "drv_in", 50, || nvme_io(&path, false, 50));
    of_passthrough(&name, "drv_out", 50, || nvme_io(&path, true, 50));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_admin_commands_have_no_disk() {
    let name = block::device_with("device/serial", "solo");
    let controller = fs::canonicalize(format!("/sys/block/{name}/device")).unwrap();
    let controller = Path::new("/dev").join(controller.file_name().unwrap());
    let daemon = Daemon::of(&name);
    let before = daemon.fresh();
    nvme_identify(&controller, 30);
    let after = daemon.fresh();
    assert_eq!(after.lost("no_disk") - before.lost("no_disk"), 30);
    assert_eq!(after.unseen(&name), 0);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn scsi_commands_are_driver_commands_of_the_disk() {
    let name = block::device_with("device/model", "QEMU HARDDISK");
    of_passthrough(&name, "drv_in", 50, || scsi_inquiry(&block::path(&name), 50));
}
