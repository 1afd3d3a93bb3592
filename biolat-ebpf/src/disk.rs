//! Reads disks, with plain loads through pointers whose types the verifier tracks.

use biolat_common::kernel::directory_id;

use crate::constants::{field, layout_const};

/// `struct gendisk`. May be null.
#[derive(Clone, Copy)]
pub(crate) struct Disk(*const u8);

impl Disk {
    #[inline(always)]
    pub(crate) fn at(pointer: *const u8) -> Self {
        Self(pointer)
    }

    #[inline(always)]
    #[allow(dead_code, reason = "only volumes have members of their own to read")]
    pub(crate) fn pointer(self) -> *const u8 {
        self.0
    }

    /// Whether it is there and has an id. NVMe admin commands have no disk.
    #[inline(always)]
    #[allow(dead_code, reason = "volumes use the checked id")]
    pub(crate) fn is_present(self) -> bool {
        !self.0.is_null()
            && (layout_const!(id_is_sequence) != 0 || !self.part0().is_null() && !self.directory().is_null())
    }

    /// The id; 0 without a disk. An id made from an inode number becomes 0 when the sysfs directory is removed.
    #[inline(always)]
    #[allow(dead_code, reason = "volumes use the checked id")]
    pub(crate) fn id(self) -> u64 {
        if layout_const!(id_is_sequence) != 0 {
            field!(u64, self.0, disk_id)
        } else {
            directory_id(field!(u64, self.directory(), disk_id))
        }
    }

    /// The id, or `None` without one. Each pointer is loaded once, because the directory may be removed at any time.
    #[inline(always)]
    #[allow(dead_code, reason = "the probe reads disks that have requests in flight")]
    pub(crate) fn checked_id(self) -> Option<u64> {
        if self.0.is_null() {
            return None;
        }
        if layout_const!(id_is_sequence) != 0 {
            return Some(field!(u64, self.0, disk_id));
        }
        let part0 = self.part0();
        if part0.is_null() {
            return None;
        }
        let directory = field!(u64, part0, disk_directory) as *const u8;
        (!directory.is_null()).then(|| directory_id(field!(u64, directory, disk_id)))
    }

    /// The sysfs directory. May be null.
    #[inline(always)]
    #[allow(dead_code, reason = "volumes use the checked id")]
    fn directory(self) -> *const u8 {
        field!(u64, self.part0(), disk_directory) as *const u8
    }

    /// The object that owns the sysfs directory: the disk, or partition 0, which is the whole disk.
    #[inline(always)]
    fn part0(self) -> *const u8 {
        if layout_const!(part0_is_pointer) != 0 {
            field!(u64, self.0, disk_part0) as *const u8
        } else {
            self.0
        }
    }
}
