//! Every kind of drive, under load from two CPUs: counts and bytes of each op match the disk statistics exactly.

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::{DISCARD, FLUSH, READ, WRITE},
    fio::Report,
    kernel,
    load::{self, DISCARDS, READS, WRITES, ZEROES},
    loop_device::LoopDevice,
    nbd::Nbd,
    null_blk::NullBlk,
    scsi_debug::ScsiDebug,
    settled::{compare, settled},
    ublk::Ublk,
};

/// Runs every op that the device supports, and compares the counts with the disk statistics.
fn check_drive(name: &str) {
    let daemon = Daemon::of(name);
    let before = settled(&daemon, name);
    load::mixed(&block::path(name));
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!(growth.missed, 0, "{name}");
    // Every requested op was counted, which proves that the load ran.
    assert_eq!(growth.of(READ), READS, "{name}");
    assert!(growth.of(WRITE) >= WRITES + ZEROES, "{name}: {:?}", growth.completions);
    let can = |attribute| block::number(name, attribute) > 0;
    let (discards, zeroes) = (can("queue/discard_max_bytes"), can("queue/write_zeroes_max_bytes"));
    // Drives support all ops; some software devices do not.
    let is_software = ["loop", "nbd", "nullb"].iter().any(|driver| name.starts_with(driver));
    assert!(discards && (is_software || zeroes), "{name}");
    assert!(growth.of(DISCARD) >= DISCARDS, "{name}: {:?}", growth.completions);
    if zeroes {
        let zeroes = after.figures.latencies("total", name, "write_zeroes");
        assert!(zeroes >= ZEROES, "{name}: {zeroes} zeroes");
    }
    let flushes = block::attribute(name, "queue/write_cache") == "write back";
    assert_eq!(growth.of(FLUSH) > 0, flushes, "{name}: {:?}", growth.completions);
    println!("{name}: reads, writes, discards, flushes: {:?}", growth.completions);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nvme_with_two_namespaces_is_exact() {
    let namespaces = block::devices_with("device/serial", "twins");
    assert_eq!(namespaces.len(), 2);
    namespaces.iter().for_each(|name| check_drive(name));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn second_nvme_controller_is_exact() {
    check_drive(&block::device_with("device/serial", "solo"));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn virtio_blk_is_exact() {
    check_drive("vda");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn virtio_scsi_is_exact() {
    check_drive(&block::device_with("device/model", "QEMU HARDDISK"));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn scsi_debug_is_exact() {
    let Some(device) = ScsiDebug::load() else { return };
    check_drive(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn null_blk_is_exact_in_every_completion_mode() {
    // Completes in the submitting task, in an interrupt on the other CPU, or in a timer.
    for mode in ["0", "1", "2"] {
        let device = NullBlk::in_memory(&[("irqmode", mode), ("submit_queues", "2")]);
        check_drive(&device.name);
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn null_blk_with_a_volatile_cache_is_exact() {
    let device = NullBlk::in_memory(&[("cache_size", "8"), ("submit_queues", "2")]);
    check_drive(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn loop_device_is_exact() {
    let device = LoopDevice::attach("drives", true);
    check_drive(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn nbd_is_exact() {
    let device = Nbd::with_cache();
    check_drive(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn ublk_is_exact() {
    let Some(device) = Ublk::start() else { return };
    check_drive(&device.name);
}

/// The submitting task finds the completions itself, without an interrupt.
#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn polled_io_uring_queue_is_exact() {
    if !kernel::allows_io_uring() || !NullBlk::can_poll() {
        return kernel::skip("null_blk has no polling queues, or io_uring is not allowed");
    }
    let device = NullBlk::new(&[("irqmode", "0"), ("submit_queues", "2"), ("poll_queues", "2")]);
    let daemon = Daemon::of(&device.name);
    let before = settled(&daemon, &device.name);
    let report = Report::of_io_polling_reads(&device.path(), 2000);
    let after = settled(&daemon, &device.name);
    let growth = compare(&device.name, &before, &after);
    assert_eq!((growth.of(READ), growth.missed), (report.requests(), 0));
}
