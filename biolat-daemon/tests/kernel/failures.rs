//! Failed requests and passthrough commands.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use biolat_common::series::Phase;
use biolat_model::snapshot::SlowIo;

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::READ,
    figures::Figures,
    kernel::{self, Ability},
    load::{self, Target},
    null_blk::NullBlk,
    passthrough::{nvme_identify, nvme_io, scsi_inquiry},
    scsi_debug::{Fault, ScsiDebug},
    settled::{compare, settled},
    slow_log::slow_ios,
};

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn medium_error_counts_once() {
    let Some(drive) = ScsiDebug::load() else { return };
    let daemon = Daemon::of(&drive.name);
    // The series exists from here on, so the probe's common case handles successful completions.
    Target::open(&block::path(&drive.name)).read(1);
    let before = settled(&daemon, &drive.name);
    drive.inject(Fault::Medium, 1);
    // One request spans the bad sectors: the kernel first completes 0 bytes of it, then the whole request with the
    // error.
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
    assert_eq!((growth.of(READ), growth.missed), (40, 0));
    assert_eq!(after.figures.errors(&drive.name, "read", "medium"), 2);
    assert_eq!(all_errors(&after.figures, &drive.name), 2);
    for record in failed_ios(&daemon, &drive.name, 2) {
        let found = (record.sector, record.bytes, record.op.as_str(), &*record.status);
        assert_eq!(found, (0x1230, 8192, "read", "medium"));
    }
}

fn all_errors(figures: &Figures, device: &str) -> u64 {
    figures.value("biolat_io_errors_total", &[("device", device)]) as u64
}

/// Returns a device's failed I/Os. Asserts that this many are counted and each has a record.
fn failed_ios(daemon: &Daemon, device: &str, count: usize) -> Vec<SlowIo> {
    let records = slow_ios(daemon, device);
    let counted = daemon.fresh().value("biolat_failed_ios_total", &[("device", device)]);
    assert_eq!((counted, records.len()), (count as f64, count), "{records:?}");
    records
}

/// Requests take 2.5 s. The timeout is 100 ms, which the kernel rounds up by at most a second.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn timeout_counts_once() {
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
    assert_eq!((growth.of(READ), growth.missed), (4, 0));
    assert_eq!(after.figures.errors(&disk.name, "read", "timeout"), 4);
    assert_eq!(all_errors(&after.figures, &disk.name), 4);
    let mut records = failed_ios(&daemon, &disk.name, 4);
    records.sort_by_key(|record| record.sector);
    for (record, number) in records.iter().zip(0..) {
        let found = (record.sector, record.bytes, record.op.as_str(), &*record.status);
        assert_eq!(found, (number << 11, 4096, "read", "timeout"));
        let total = record.latencies[Phase::Total as usize].unwrap().as_secs_f64();
        assert!((2.5..3.0).contains(&total), "{total} s");
    }
    let seconds = growth.seconds("device", "read");
    assert!((10.0..12.0).contains(&seconds), "{seconds} s in total for four requests of 2.5 s");
}

/// Sends passthrough commands and asserts that they are counted, or lost as `passthrough` if the kernel does not timestamp them.
/// Where the kernel accounts them, its count must match.
fn check_passthrough(device: &str, op: &str, commands: u64, send: impl FnOnce()) {
    let daemon = Daemon::of(device);
    let before = settled(&daemon, device);
    send();
    let after = settled(&daemon, device);
    let growth = compare(device, &before, &after);
    let counted = growth.latencies("total", op);
    let lost = growth.lost("passthrough");
    let expected = if kernel::has(Ability::PassthroughTimestamps) { (commands, 0) } else { (0, commands) };
    assert_eq!((counted, lost), expected, "{op}: counted and lost");
    assert_eq!(after.figures.missed(device), 0);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_io_commands_count_on_namespace() {
    let name = block::device_with("device/serial", "solo");
    let path = block::path(&name);
    check_passthrough(&name, "drv_in", 50, || nvme_io(&path, false, 50));
    check_passthrough(&name, "drv_out", 50, || nvme_io(&path, true, 50));
}

/// An NVMe drive, and its controller's device file.
fn solo() -> (String, PathBuf) {
    let name = block::device_with("device/serial", "solo");
    let controller = fs::canonicalize(format!("/sys/block/{name}/device")).unwrap();
    (name, Path::new("/dev").join(controller.file_name().unwrap()))
}

/// Reason under which commands without a disk are lost. Kernels that account passthrough commands on demand also mark them as not
/// accounted.
fn admin_command_loss_reason(name: &str) -> &'static str {
    let is_on_demand = Path::new("/sys/block").join(name).join("queue/iostats_passthrough").exists();
    if is_on_demand { "passthrough" } else { "no_disk" }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_admin_commands_are_lost() {
    let (name, controller) = solo();
    let daemon = Daemon::of(&name);
    let before = daemon.fresh();
    nvme_identify(&controller, 30);
    let after = daemon.fresh();
    let reason = admin_command_loss_reason(&name);
    assert_eq!(after.lost(reason) - before.lost(reason), 30, "lost as {reason}");
    assert_eq!(after.missed(&name), 0);
}

/// The read through the null disk pointer must be handled regardless of the order of the loaded programs in memory. Before 6.4
/// the kernel could fail to find the exception handler, and crashed with two probes.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn many_probes_survive_admin_commands() {
    let (name, controller) = solo();
    let reason = admin_command_loss_reason(&name);
    let mut daemons = Vec::new();
    for _ in 0..6 {
        daemons.push(Daemon::of(&name));
        nvme_identify(&controller, 5);
    }
    for (number, daemon) in daemons.iter().enumerate() {
        assert!(daemon.fresh().lost(reason) >= 5 * (6 - number as u64), "daemon {number}");
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn scsi_commands_count_on_disk() {
    let name = block::device_with("device/model", "QEMU HARDDISK");
    // Older kernels have a separate op for SCSI.
    let op = READ.ops().find(|&op| op == "scsi_in").unwrap_or("drv_in");
    check_passthrough(&name, op, 50, || scsi_inquiry(&block::path(&name), 50));
}
