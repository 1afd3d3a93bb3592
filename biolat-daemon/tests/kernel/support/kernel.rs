//! The running kernel, and what it lacks.

pub(crate) use biolat_probe::release::Release;

use biolat_system::host::Host;

pub(crate) fn release() -> Release {
    Release::of(&Host::default()).unwrap()
}

/// Whether disks have sequence numbers: since 5.15.
pub(crate) fn has_disk_sequences() -> bool {
    release() >= Release(5, 15)
}

/// Why a test with loop devices cannot run without sequence numbers: a loop device stays the same disk with another file.
pub(crate) const SAME_LOOP_DEVICE: &str =
    "before 5.15 nothing tells that a loop device got another file, unless a scan found it without one";

/// Whether the partitions of a new disk are looked for before its queue is set up: the reads have no dispatch time.
///
/// <https://github.com/torvalds/linux/commit/75f4dca59694>
pub(crate) fn scans_partitions_without_dispatch_times() -> bool {
    release() < Release(5, 15)
}

/// Raises the limit of locked memory of this process and those that it starts, as the systemd unit does, if BPF maps count
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

/// Says why this kernel cannot run the test that calls it, which then returns. `cargo xtask vm` lists such tests as skipped.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}
