//! Features of the running kernel.

pub(crate) use biolat_probe::release::Release;

use biolat_system::host::Host;

pub(crate) fn release() -> Release {
    Release::of(&Host::default()).unwrap()
}

/// Whether disks have sequence numbers, which Linux 5.15 added.
pub(crate) fn has_disk_sequences() -> bool {
    release() >= Release(5, 15)
}

/// Reason why a test with loop devices cannot run without sequence numbers: a loop device that is attached to another file still
/// looks like the same disk.
pub(crate) const SAME_LOOP_DEVICE: &str =
    "before 5.15 a loop device with another file looks like the same disk, unless a scan ran in between";

/// Whether the kernel scans the partitions of a new disk before it sets up the queue, so these reads have no dispatch time.
///
/// <https://github.com/torvalds/linux/commit/75f4dca59694>
pub(crate) fn scans_partitions_without_dispatch_times() -> bool {
    release() < Release(5, 15)
}

/// Raises the locked memory limit of this process and its children, as the systemd unit does, on kernels where BPF maps count
/// against it.
pub(crate) fn unlimit_locked_memory() {
    if release() > Release::LAST_WITH_MEMLOCK {
        return;
    }
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the limit is valid.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

/// Prints why this kernel cannot run the calling test, which then returns. `cargo xtask vm` lists such tests as skipped.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}
