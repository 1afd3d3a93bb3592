//! Facts about the running kernel that the programs for volumes need, resolved from its BTF.

use std::collections::BTreeMap;

use biolat_common::volumes::VolumeConstants;

use crate::btf::{self, Btf, tracepoint};

/// The submission of a bio.
pub(crate) const QUEUE: &str = "block_bio_queue";
/// The end of a bio.
pub(crate) const COMPLETE: &str = "block_bio_complete";

/// The tracepoints and layout of a kernel, for measuring volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeTracing {
    pub(crate) constants: VolumeConstants,
    /// Type ids of the tracepoints.
    queue: u32,
    complete: u32,
}

impl VolumeTracing {
    /// `None` if the kernel lacks a tracepoint or a member, or a tracepoint has other arguments.
    pub(super) fn resolve(btf: &Btf<'_>, ops: &BTreeMap<u32, String>) -> Option<Self> {
        let member = |structure: &str, member: &str| btf.member_offset(structure, member);
        let disk = member("bio", "bi_disk");
        // The first parameter of a tracepoint's function is private data.
        let parameters = |name| btf.parameter_count(&tracepoint(name));
        let start_bio = match parameters(QUEUE)? {
            2 => 0,
            3 => size_of::<u64>() as u32,
            _ => return None,
        };
        if parameters(COMPLETE)? != 3 {
            return None;
        }
        Some(Self {
            constants: VolumeConstants {
                bio_device: disk.or_else(|| member("bio", "bi_bdev"))?,
                device_disk: if disk.is_some() { 0 } else { member("block_device", "bd_disk")? },
                bio_has_disk: u32::from(disk.is_some()),
                bio_flags: member("bio", "bi_opf")?,
                bio_status: member("bio", "bi_status")?,
                bio_bytes: btf.nested_offset("bio", &["bi_iter", "bi_size"])?,
                disk_queue: member("gendisk", "queue")?,
                op_discard: ops.iter().find_map(|(&op, name)| (name == "discard").then_some(op))?,
                start_bio,
            },
            queue: btf.typedef_id(&tracepoint(QUEUE))?,
            complete: btf.typedef_id(&tracepoint(COMPLETE))?,
        })
    }

    /// Encodes the tracepoints for aya: see [`super::Kernel::tracepoints`].
    pub(crate) fn tracepoints(&self) -> Result<aya::Btf, aya::BtfError> {
        let typedefs =
            BTreeMap::from([(self.queue, tracepoint(QUEUE)), (self.complete, tracepoint(COMPLETE))]);
        aya::Btf::parse(&btf::encode_typedefs(&typedefs), aya::Endianness::default())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use biolat_testing::btf::{Writer, tracepoint};

    use super::VolumeTracing;
    use crate::btf::Btf;

    /// BTF of a kernel where `block_bio_queue` has this many arguments and a bio has this pointer to its device.
    fn resolve(arguments: usize, pointer: &str) -> Option<VolumeTracing> {
        let mut writer = Writer::new();
        let int = writer.int("int");
        let iter = writer.structure(4, "bvec_iter", &[("bi_size", int, 8)]);
        let bio = [(pointer, int, 8), ("bi_opf", int, 16), ("bi_status", int, 26), ("bi_iter", iter, 32)];
        writer.structure(4, "bio", &bio);
        writer.structure(4, "block_device", &[("bd_disk", int, 48)]);
        writer.structure(4, "gendisk", &[("queue", int, 64)]);
        tracepoint(&mut writer, "block_bio_queue", &["void", "request_queue", "bio"][..1 + arguments]);
        tracepoint(&mut writer, "block_bio_complete", &["void", "request_queue", "bio"]);
        let bytes = writer.finish();
        VolumeTracing::resolve(&Btf::parse(&bytes).unwrap(), &BTreeMap::from([(3, "discard".to_owned())]))
    }

    #[test]
    fn finds_the_device_of_a_bio() {
        let constants = resolve(1, "bi_bdev").unwrap().constants;
        assert_eq!((constants.bio_device, constants.device_disk, constants.bio_has_disk), (8, 48, 0));
        assert_eq!((constants.bio_bytes, constants.bio_status, constants.start_bio), (40, 26, 0));
        let before_5_12 = resolve(2, "bi_disk").unwrap().constants;
        assert_eq!((before_5_12.bio_device, before_5_12.bio_has_disk, before_5_12.start_bio), (8, 1, 8));
        assert_eq!(resolve(2, "bi_other"), None);
    }
}
