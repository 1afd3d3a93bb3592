//! Drives of every kind, under load from two CPUs: counts and bytes of each op are exactly those of the disk statistics.

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::{DISCARD, FLUSH, READ, WRITE},
    load::{self, DISCARDS, READS, WRITES, ZEROES},
    loop_device::LoopDevice,
    null_blk::NullBlk,
    scsi_debug::ScsiDebug,
    settled::{compare, settled},
};

/// Loads a device with every op that it supports, and compares the counts with the disk statistics.
fn is_exact(name: &str) {
    let daemon = Daemon::of(name);
    let before = settled(&daemon, name);
    load::mixed(&block::path(name));
    let after = settled(&daemon, name);
    let growth = compare(name, &before, &after);
    assert_eq!(growth.unseen, 0, "{name}");
    // The test is not empty: what was requested is there, by op.
    assert_eq!(growth.of(READ), READS, "{name}");
    assert!(growth.of(WRITE) >= WRITES + ZEROES, "{name}: {:?}", growth.completions);
    let can = |attribute| block::number(name, attribute) > 0;
    let (discards, zeroes) = (can("queue/discard_max_bytes"), can("queue/write_zeroes_max_bytes"));
    // Drives support all ops; some software devices do.
    let is_software = name.starts_with("nullb") || name.starts_with("loop");
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
    namespaces.iter().for_each(|name| is_exact(name));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn another_nvme_controller_is_exact() {
    is_exact(&block::device_with("device/serial", "solo"));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn virtio_blk_is_exact() {
    is_exact("vda");
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn virtio_scsi_is_exact() {
    is_exact(&block::device_with("device/model", "QEMU HARDDISK"));
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn scsi_debug_is_exact() {
    let Some(device) = ScsiDebug::load() else { return };
    is_exact(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn null_blk_is_exact_however_it_completes() {
    // Completions at once, by an interrupt on the other CPU, by a timer.
    for mode in ["0", "1", "2"] {
        let device = NullBlk::in_memory(&[("irqmode", mode), ("submit_queues", "2")]);
        is_exact(&device.name);
    }
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn null_blk_with_a_volatile_cache_is_exact() {
    let device = NullBlk::in_memory(&[("cache_size", "8"), ("submit_queues", "2")]);
    is_exact(&device.name);
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn a_loop_device_is_exact() {
    let device = LoopDevice::attach("drives", true);
    is_exact(&device.name);
}
