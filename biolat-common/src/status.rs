//! Block statuses (`BLK_STS_*`). They are macros, so they are not in BTF.
//!
//! Statuses up to 13 have never changed. Linux 6.10 removed `BLK_STS_ZONE_RESOURCE` and renumbered the statuses after it;
//! see `include/linux/blk_types.h`.

/// Number of error counters of a series. The last one also counts all higher statuses.
pub const STATUSES: usize = 21;

/// The kernel's names, in lower case, of the statuses up to 13, whose numbers are the same on every kernel. `resv_conflict` was
/// `nexus` before 6.5.
const STABLE: [&str; 14] = [
    "ok",
    "notsupp",
    "timeout",
    "nospc",
    "transport",
    "target",
    "resv_conflict",
    "medium",
    "protection",
    "resource",
    "ioerr",
    "dm_requeue",
    "again",
    "dev_resource",
];
const SINCE_6_10: [&str; 6] =
    ["zone_open_resource", "zone_active_resource", "offline", "duration_limit", "other", "inval"];
const BEFORE_6_10: [&str; 5] =
    ["zone_resource", "zone_open_resource", "zone_active_resource", "offline", "duration_limit"];

/// Returns the name of a status, numbered as in 6.10 and later or as before 6.10.
#[must_use]
pub fn name(status: usize, since_6_10: bool) -> &'static str {
    let moved: &[&str] = if since_6_10 { &SINCE_6_10 } else { &BEFORE_6_10 };
    STABLE.get(status).or_else(|| moved.get(status - STABLE.len())).copied().unwrap_or("other")
}

/// Returns the status for a negative errno, which is what the tracepoint passed before Linux 5.16.
///
/// The inverse of `blk_errors[]` in `block/blk-core.c`. Any errno not listed here means `BLK_STS_IOERR`.
#[must_use]
pub const fn from_errno(errno: i32) -> usize {
    match -errno {
        0 => 0,
        95 => 1,   // EOPNOTSUPP
        110 => 2,  // ETIMEDOUT
        28 => 3,   // ENOSPC
        67 => 4,   // ENOLINK
        121 => 5,  // EREMOTEIO
        52 => 6,   // EBADE
        61 => 7,   // ENODATA
        84 => 8,   // EILSEQ
        12 => 9,   // ENOMEM
        11 => 12,  // EAGAIN
        16 => 13,  // EBUSY
        78 => 11,  // EREMCHG
        109 => 15, // ETOOMANYREFS
        75 => 16,  // EOVERFLOW
        _ => 10,
    }
}

#[cfg(test)]
mod tests {
    use super::{STATUSES, from_errno, name};

    #[test]
    fn renumbered_statuses_keep_their_names() {
        assert_eq!(name(10, true), "ioerr");
        assert_eq!(name(7, false), "medium");
        assert_eq!(name(17, false), "offline");
        assert_eq!(name(16, true), "offline");
        assert_eq!(name(19, true), "inval");
        assert_eq!(name(STATUSES - 1, true), "other");
        assert_eq!(name(STATUSES - 1, false), "other");
    }

    #[test]
    fn translates_errnos_of_old_kernels() {
        assert_eq!(name(from_errno(-61), false), "medium");
        assert_eq!(name(from_errno(-5), false), "ioerr");
        assert_eq!(name(from_errno(-110), false), "timeout");
        assert_eq!(name(from_errno(-78), false), "dm_requeue");
        assert_eq!(name(from_errno(-109), false), "zone_open_resource");
        assert_eq!(name(from_errno(-75), false), "zone_active_resource");
    }
}
