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

    /// The id, or `None` without one: NVMe admin commands have no disk, and a disk that is being removed has no sysfs directory.
    ///
    /// Each pointer is loaded only once, because the directory may be removed at any time, and a load through a null pointer could
    /// crash the kernel: see the probe's `common_case::has_null`.
    #[inline(always)]
    pub(crate) fn id(self) -> Option<u64> {
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
