//! Tests the layout that volumes need, on the same kernels. The figures are from `pahole -F btf -C STRUCT FILE`.

use biolat_common::volumes::VolumeConstants;

use super::{KERNELS, btf};
use crate::kernel::Kernel;

// One column per kernel.
#[rustfmt::skip]
const RESOLVED: [(&str, [u32; KERNELS.len()]); 9] = [
    //                        5.10   5.11   5.13   5.16   5.19    6.1    6.7    6.8   6.11   6.12   6.18    7.1    7.3
    ("bio_device",          [    8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8]),
    ("device_disk",         [    0,     0,   864,   856,   856,   848,    16,    16,    16,    16,    16,    16,    16]),
    ("bio_has_disk",        [    1,     1,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("bio_flags",           [   16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16]),
    ("bio_status",          [   26,    26,    26,    26,    24,    24,    24,    24,    25,    25,    26,    26,    26]),
    ("bio_bytes",           [   40,    40,    40,    40,    40,    40,    40,    40,    40,    40,    40,    48,    48]),
    ("disk_queue",          [  944,    72,    80,    80,    80,    80,    80,    80,    80,    80,    80,    80,    80]),
    ("op_discard",          [    3,     3,     3,     3,     3,     3,     3,     3,     3,     3,     3,     3,     3]),
    // Linux 5.11 removed the first argument.
    ("start_bio",           [    8,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
];

#[test]
fn agrees_with_pahole_on_every_kernel() {
    for (column, version) in KERNELS.into_iter().enumerate() {
        let kernel = Kernel::from_btf(&btf(version)).unwrap();
        let volumes = kernel.volumes.unwrap_or_else(|| panic!("Linux {version}"));
        let expected = RESOLVED.map(|(name, kernels)| (name, kernels[column]));
        assert_eq!(resolved(volumes.constants), expected, "Linux {version}");
    }
}

/// Lists the constants in the order of the table. Adding one does not compile until it is added here.
fn resolved(constants: VolumeConstants) -> Vec<(&'static str, u32)> {
    members! {
        VolumeConstants = constants;
        bio_device, device_disk, bio_has_disk, bio_flags, bio_status, bio_bytes, disk_queue, op_discard,
        start_bio
    }
}
