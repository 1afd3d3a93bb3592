//! What biolat needs to know of the running kernel, resolved from its BTF.

use std::collections::BTreeMap;

use biolat_common::kernel::Layout;

use super::btf::{Btf, MalformedBtf};

/// The kernel as its BTF describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// The layout that the probe is relocated to.
    pub layout: Layout,
    /// The names of the ops by number: the kernel's names in lower case.
    pub ops: BTreeMap<u32, String>,
    /// Whether block statuses have the numbers of Linux 6.10 and later.
    pub statuses_since_6_10: bool,
}

/// Why the probe cannot run on this kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum UnsupportedKernel {
    /// The BTF cannot be parsed.
    Malformed(MalformedBtf),
    /// No tracepoint `block_rq_complete`.
    NoTracepoint,
    /// A member or enumerator is missing.
    Missing(String),
}

impl std::fmt::Display for UnsupportedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::NoTracepoint => f.write_str(
                "this kernel has no BTF tracepoint block_rq_complete: \
                 biolat requires Linux 5.8 or later with CONFIG_BLOCK and CONFIG_DEBUG_INFO_BTF",
            ),
            Self::Missing(what) => write!(
                f,
                "this kernel's BTF has no {what}: biolat does not support this kernel yet, please report it with \
                 the output of `uname -r`"
            ),
        }
    }
}

impl std::error::Error for UnsupportedKernel {}

impl From<MalformedBtf> for UnsupportedKernel {
    fn from(malformed: MalformedBtf) -> Self {
        Self::Malformed(malformed)
    }
}

/// Flags that are macros, and so not in BTF, before Linux 6.11; their bits are the same from 5.8 to 6.10.
///
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/blk-mq.h#L26>
const FLUSH_SEQ_BIT_BEFORE_6_11: u64 = 4;
const IO_STAT_BIT_BEFORE_6_11: u64 = 13;

impl Kernel {
    /// Resolves the layout, the ops and the statuses from the bytes of the kernel's BTF.
    pub fn from_btf(bytes: &[u8]) -> Result<Self, UnsupportedKernel> {
        let btf = Btf::parse(bytes)?;
        // The first parameter of a tracepoint's function is its private data.
        let status =
            btf.parameter_type("btf_trace_block_rq_complete", 2).ok_or(UnsupportedKernel::NoTracepoint)?;
        let member = |structure: &str, member: &str| {
            btf.member_offset(structure, member)
                .ok_or_else(|| UnsupportedKernel::Missing(format!("member {member} in struct {structure}")))
        };
        let flag = |name: &str, otherwise: u64| {
            let bit = u32::try_from(btf.enumerator(name).unwrap_or(otherwise)).ok();
            bit.and_then(|bit| 1_u32.checked_shl(bit))
                .ok_or_else(|| UnsupportedKernel::Missing(format!("{name} below 32")))
        };

        let ops = ops(&btf);
        let op = |name: &str| {
            ops.iter().find_map(|(&number, found)| (found == name).then_some(number)).ok_or_else(|| {
                UnsupportedKernel::Missing(format!("REQ_OP_{} in enum req_op", name.to_uppercase()))
            })
        };
        let disk_on_request = btf.member_offset("request", "rq_disk");
        let sequence = btf.member_offset("gendisk", "diskseq");
        let layout = Layout {
            cmd_flags: member("request", "cmd_flags")?,
            rq_flags: member("request", "rq_flags")?,
            data_len: member("request", "__data_len")?,
            bio: member("request", "bio")?,
            start_time_ns: member("request", "start_time_ns")?,
            io_start_time_ns: member("request", "io_start_time_ns")?,
            queue_or_disk: match disk_on_request {
                Some(offset) => offset,
                None => member("request", "q")?,
            },
            queue_disk: if disk_on_request.is_some() { 0 } else { member("request_queue", "disk")? },
            disk_on_queue: u32::from(disk_on_request.is_none()),
            disk_id: match sequence {
                Some(offset) => offset,
                None => member("gendisk", "major")?,
            },
            first_minor: member("gendisk", "first_minor")?,
            id_is_sequence: u32::from(sequence.is_some()),
            flush_sequence: flag("__RQF_FLUSH_SEQ", FLUSH_SEQ_BIT_BEFORE_6_11)?,
            io_stat: flag("__RQF_IO_STAT", IO_STAT_BIT_BEFORE_6_11)?,
            op_flush: op("flush")?,
            op_passthrough: op("scsi_in").or_else(|_| op("drv_in"))?,
            status_is_errno: u32::from(status == "int"),
        };
        // The enumerator came with the change that renumbered the statuses.
        let statuses_since_6_10 = btf.enumerator("BIO_ZONE_WRITE_PLUGGING").is_some();
        Ok(Self { layout, ops, statuses_since_6_10 })
    }

    /// Whether this kernel records when each I/O is submitted. Later ones do it on demand, for some queues.
    #[must_use]
    pub fn records_submission(&self) -> bool {
        self.layout.bio_issue_kind == 1
    }

    /// The value of the label `op` for an op's number.
    #[must_use]
    pub fn op_name(&self, op: u32) -> String {
        self.ops.get(&op).cloned().unwrap_or_else(|| format!("op_{op}"))
    }
}

/// `enum req_op`, until 6.0 `enum req_opf`.
fn ops(btf: &Btf<'_>) -> BTreeMap<u32, String> {
    ["req_op", "req_opf"]
        .into_iter()
        .flat_map(|name| btf.enumerators(name))
        .filter_map(|(name, value)| {
            let name = name.strip_prefix("REQ_OP_").filter(|&name| name != "LAST")?;
            Some((u32::try_from(value).ok()?, name.to_lowercase()))
        })
        .collect()
}

#[cfg(test)]
mod layouts;

#[cfg(test)]
pub(crate) mod tests {
    use super::{Kernel, UnsupportedKernel};
    use crate::probe::btf::tests::Writer;

    /// BTF like that of Linux 6.12, without one member.
    pub(crate) fn modern(without: &str) -> Vec<u8> {
        let mut writer = Writer::new();
        let int = writer.int("int");
        let all = [
            ("q", int, 0),
            ("cmd_flags", int, 24),
            ("rq_flags", int, 28),
            ("__data_len", int, 44),
            ("bio", int, 56),
            ("start_time_ns", int, 104),
            ("io_start_time_ns", int, 112),
        ];
        let members: Vec<_> = all.into_iter().filter(|(name, ..)| *name != without).collect();
        writer.structure(4, "request", &members);
        writer.structure(4, "request_queue", &[("disk", int, 104)]);
        writer.structure(4, "gendisk", &[("major", int, 0), ("first_minor", int, 4), ("diskseq", int, 800)]);
        writer.enumeration(
            "",
            &[("__RQF_FLUSH_SEQ", 1), ("__RQF_IO_STAT", 8), ("BIO_ZONE_WRITE_PLUGGING", 11)],
        );
        writer.enumeration(
            "req_op",
            &[("REQ_OP_READ", 0), ("REQ_OP_FLUSH", 2), ("REQ_OP_DRV_IN", 34), ("REQ_OP_LAST", 36)],
        );
        tracepoint(&mut writer, "blk_status_t");
        writer.finish()
    }

    fn tracepoint(writer: &mut Writer, status: &str) {
        let status = writer.int(status);
        let prototype = writer.prototype(&[status, status, status, status]);
        let pointer = writer.pointer(prototype);
        writer.typedef("btf_trace_block_rq_complete", pointer);
    }

    #[test]
    fn a_modern_kernel() {
        let kernel = Kernel::from_btf(&modern("")).unwrap();
        let layout = kernel.layout;
        assert_eq!((layout.start_time_ns, layout.io_start_time_ns, layout.data_len), (104, 112, 44));
        assert_eq!((layout.disk_on_queue, layout.queue_or_disk, layout.queue_disk), (1, 0, 104));
        assert_eq!((layout.id_is_sequence, layout.disk_id), (1, 800));
        assert_eq!((layout.flush_sequence, layout.io_stat), (1 << 1, 1 << 8));
        assert_eq!((layout.op_flush, layout.op_passthrough, layout.status_is_errno), (2, 34, 0));
        assert!(kernel.statuses_since_6_10);
        assert_eq!(kernel.op_name(34), "drv_in");
        assert_eq!(kernel.op_name(36), "op_36");
    }

    #[test]
    fn an_old_kernel_with_the_disk_on_the_request() {
        let mut writer = Writer::new();
        let int = writer.int("int");
        let members = [
            "q",
            "cmd_flags",
            "rq_flags",
            "__data_len",
            "rq_disk",
            "bio",
            "start_time_ns",
            "io_start_time_ns",
        ]
        .iter()
        .zip(0..)
        .map(|(&name, index)| (name, int, index * 8))
        .collect::<Vec<_>>();
        writer.structure(4, "request", &members);
        writer.structure(4, "gendisk", &[("major", int, 0), ("first_minor", int, 4)]);
        writer.enumeration("req_opf", &[("REQ_OP_FLUSH", 2), ("REQ_OP_SCSI_IN", 32), ("REQ_OP_DRV_IN", 34)]);
        tracepoint(&mut writer, "int");
        let layout = Kernel::from_btf(&writer.finish()).unwrap().layout;
        assert_eq!((layout.disk_on_queue, layout.queue_or_disk), (0, 32));
        assert_eq!((layout.id_is_sequence, layout.disk_id, layout.first_minor), (0, 0, 4));
        assert_eq!((layout.flush_sequence, layout.io_stat), (1 << 4, 1 << 13));
        assert_eq!((layout.op_passthrough, layout.status_is_errno), (32, 1));
    }

    #[test]
    fn what_is_missing_is_named() {
        let error = Kernel::from_btf(&modern("io_start_time_ns")).unwrap_err();
        assert_eq!(error, UnsupportedKernel::Missing("member io_start_time_ns in struct request".into()));
        assert!(error.to_string().contains("io_start_time_ns in struct request"), "{error}");
    }

    /// BTF without any type of the block layer.
    pub(crate) fn without_tracepoint() -> Vec<u8> {
        let mut writer = Writer::new();
        writer.int("int");
        writer.finish()
    }

    #[test]
    fn no_tracepoint() {
        assert_eq!(Kernel::from_btf(&without_tracepoint()), Err(UnsupportedKernel::NoTracepoint));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// The result may be any layout or error; it must not panic.
        #[test]
        fn mutated_and_truncated_btf_never_panics(
            changes in proptest::collection::vec((0..2000_usize, proptest::prelude::any::<u8>()), 0..8),
            end in 0..4000_usize,
        ) {
            let mut bytes = modern("");
            for (at, byte) in changes {
                let length = bytes.len();
                bytes[at % length] = byte;
            }
            bytes.truncate(end);
            let _ = Kernel::from_btf(&bytes);
        }
    }
}
