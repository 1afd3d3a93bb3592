//! Reads bios, with plain loads through pointers whose types the verifier tracks.

use biolat_common::volumes::{self, BioKey};

use crate::{
    constants::{constant, member},
    disk::Disk,
    maps,
    number::number,
};

/// A bio that the kernel has passed to a tracepoint.
pub(crate) struct Bio(*const u8);

impl Bio {
    #[inline(always)]
    pub(crate) fn at(pointer: *const u8) -> Self {
        Self(pointer)
    }

    /// The disk that it was submitted to, with its id. `None` if there is none.
    #[inline(always)]
    pub(crate) fn disk(&self) -> Option<(Disk, u64)> {
        let device = member!(u64, self.0, volumes.bio_device) as *const u8;
        if device.is_null() {
            return None;
        }
        let disk = Disk::at(if constant!(volumes.bio_has_disk) != 0 {
            device
        } else {
            member!(u64, device, volumes.device_disk) as *const u8
        });
        disk.id().map(|id| (disk, id))
    }

    #[inline(always)]
    pub(crate) fn key(&self, device: u64) -> BioKey {
        BioKey::new(number(self.0, maps::anchor()), device)
    }

    #[inline(always)]
    pub(crate) fn bytes(&self) -> u32 {
        member!(u32, self.0, volumes.bio_bytes)
    }

    /// Index of the counters of its op.
    #[inline(always)]
    pub(crate) fn group(&self) -> u32 {
        // The lowest byte of the flags is the op.
        volumes::group(member!(u32, self.0, volumes.bio_flags) & 0xff, constant!(volumes.op_discard))
    }

    /// `BLK_STS_*`.
    #[inline(always)]
    pub(crate) fn status(&self) -> u8 {
        member!(u8, self.0, volumes.bio_status)
    }
}
