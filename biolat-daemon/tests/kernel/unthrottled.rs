//! A queue without writeback throttling, io.cost, BFQ or Kyber, for which the kernel does not record dispatch times.
//!
//! The guests' kernels set up throttling for every device and never remove it, so the test clears the queue's flag for dispatch
//! timestamps in kernel memory.

use std::{fs, path::Path, sync::atomic::Ordering};

use biolat_probe::btf::Btf;

use crate::support::{
    block,
    daemon::Daemon,
    diskstats::READ,
    figures::ALLOW_UNDISPATCHED,
    kernel_memory::KernelMemory,
    load::Target,
    null_blk::NullBlk,
    settled::{compare, settled},
};

/// `QUEUE_FLAG_STATS` on kernels where it is a macro and therefore not in BTF.
///
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/blkdev.h#L563>
const STATS_BIT_BEFORE_6_12: u64 = 20;

/// Returns the kernel address of a device's queue, found by tracing the dispatch of a read.
fn queue_address(disk: &NullBlk) -> u64 {
    let tracing = Path::new("/sys/kernel/debug/tracing");
    let event = tracing.join("events/biolat/dispatch");
    // Not `$arg1`, which Linux 4.18 does not know.
    let first_argument = if cfg!(target_arch = "aarch64") { "%x0" } else { "%di" };
    let definition = format!("p:biolat/dispatch blk_mq_start_request queue=+0({first_argument}):x64");
    fs::write(tracing.join("kprobe_events"), definition).unwrap();
    // SAFETY: no precondition.
    let own = unsafe { libc::gettid() };
    fs::write(event.join("filter"), format!("common_pid == {own}")).unwrap();
    fs::write(event.join("enable"), "1").unwrap();
    Target::open(&disk.path()).read_first(1);
    let trace = fs::read_to_string(tracing.join("trace")).unwrap();
    fs::write(event.join("enable"), "0").unwrap();
    fs::write(tracing.join("kprobe_events"), "").unwrap();
    let queue = trace
        .lines()
        .filter_map(|line| line.split_once("queue=0x"))
        .next_back()
        .expect("no dispatch was traced")
        .1;
    u64::from_str_radix(queue.trim(), 16).unwrap()
}

#[test]
#[ignore = "runs in an emulated machine: cargo xtask vm"]
fn only_total_is_available() {
    let disk = NullBlk::in_memory(&[]);
    block::set_attribute(&disk.name, "queue/wbt_lat_usec", "0");
    // With a scheduler, older kernels dispatch from another thread, which is not traced.
    block::set_attribute(&disk.name, "queue/scheduler", "none");
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let btf = Btf::parse(&types).unwrap();
    let flags = queue_address(&disk) + u64::from(btf.member_offset("request_queue", "queue_flags").unwrap());
    let stats = 1 << btf.enumerator("QUEUE_FLAG_STATS").unwrap_or(STATS_BIT_BEFORE_6_12);
    let memory = KernelMemory::open();
    let before = memory.read(flags);
    assert_ne!(before & stats, 0, "{before:#x}: these are not the queue's flags");

    ALLOW_UNDISPATCHED.store(true, Ordering::Relaxed);
    let daemon = Daemon::of(&disk.name);
    let target = Target::open(&disk.path());
    target.read(10);
    for has_dispatch_times in [false, true] {
        memory.write(flags, if has_dispatch_times { before } else { before & !stats });
        // The daemon detects the change with the first of these reads.
        target.read(10);
        let moment = settled(&daemon, &disk.name);
        target.read(100);
        let after = settled(&daemon, &disk.name);
        let growth = compare(&disk.name, &moment, &after);
        assert_eq!((growth.of(READ), growth.missed), (100, 0));
        let part = if has_dispatch_times { 100 } else { 0 };
        for (phase, count, available) in
            [("queue", part, has_dispatch_times), ("device", part, has_dispatch_times), ("total", 100, true)]
        {
            assert_eq!(growth.latencies(phase, "read"), count, "{phase}");
            assert_eq!(after.figures.has_phase(&disk.name, phase), available, "{phase}");
        }
    }
    ALLOW_UNDISPATCHED.store(false, Ordering::Relaxed);
}
