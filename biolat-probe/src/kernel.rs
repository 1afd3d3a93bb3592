//! Facts about the running kernel, resolved from its BTF.

mod names;
pub mod processes;
pub(crate) mod volumes;

use std::collections::BTreeMap;

use biolat_common::{
    kernel::{KernelLayout, bio_issue},
    names::NamesLayout,
};

use super::{
    abilities::{Abilities, Ability},
    btf::{self, Btf, MalformedBtf, tracepoint},
    programs::{COMPLETE, REQUEUE, TAG_WAIT},
};

pub use volumes::VolumeTracing;

/// The kernel as described by its BTF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Layout of its structs.
    pub layout: KernelLayout,
    /// Names of the ops by number: the kernel's names in lower case.
    pub ops: BTreeMap<u32, String>,
    /// Whether block statuses are numbered as in Linux 6.10 and later.
    pub statuses_since_6_10: bool,
    /// Type id of the tracepoint `block_rq_complete`.
    pub complete: u32,
    /// Type id of the tracepoint `block_rq_requeue`, if it exists and the probe knows its arguments.
    pub requeue: Option<u32>,
    /// Type id of the tracepoint `block_rq_tag_wait`, if it exists and the probe knows its arguments.
    pub tag_wait: Option<u32>,
    /// What it can do, as far as BTF shows.
    pub abilities: Abilities,
    /// Whether the layout has all members that are needed to survey a device's requests in flight.
    pub can_walk: bool,
    /// Whether the layout has the members that lead from a request to the cgroup that the kernel charges.
    pub has_workloads: bool,
    /// Layout of the structs that lead to the file and the process of an I/O. `None` if they cannot be found.
    pub names: Option<NamesLayout>,
    /// What is needed to measure volumes. `None` if it cannot be found.
    pub volumes: Option<VolumeTracing>,
    /// Where the kernel counts the references to an open link.
    pub link_members: Option<LinkMembers>,
}

/// Offsets of the members that lead from an open file to the reference count of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkMembers {
    /// `file.f_ref`, or `file.f_count` (before 6.13).
    pub file_count: u32,
    /// `file.private_data`.
    pub file_private: u32,
    /// `bpf_link.refcnt`.
    pub link_count: u32,
}

/// The kernels with all that biolat requires.
pub const REQUIRED_KERNEL: &str =
    "Linux 5.8 or later, or a kernel of RHEL 8.4 or later, built with CONFIG_BLOCK and CONFIG_DEBUG_INFO_BTF";

/// Why the probe cannot run on this kernel.
#[derive(Debug, PartialEq, Eq)]
pub enum UnsupportedKernel {
    /// The BTF cannot be parsed.
    Malformed(MalformedBtf),
    /// It lacks something that biolat requires.
    Lacks(Ability),
    /// A member or enumerator is missing.
    Missing(String),
}

impl std::fmt::Display for UnsupportedKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Lacks(ability) => {
                write!(f, "{}: biolat requires {REQUIRED_KERNEL}", ability.row().lacking())
            }
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

/// Flags that were macros before Linux 6.11, and therefore not in BTF. Their bits are the same from 5.8 to 6.10.
///
/// <https://github.com/torvalds/linux/blob/v6.1/include/linux/blk-mq.h#L26>
const FLUSH_SEQ_BIT_BEFORE_6_11: u64 = 4;
const IO_STAT_BIT_BEFORE_6_11: u64 = 13;

impl Kernel {
    /// Resolves the layout, the ops and the statuses from the bytes of the kernel's BTF.
    pub fn from_btf(bytes: &[u8]) -> Result<Self, UnsupportedKernel> {
        let btf = Btf::parse(bytes)?;
        let abilities = Abilities::of(&btf);
        if let Some(ability) = abilities.missing_requirement() {
            return Err(UnsupportedKernel::Lacks(ability));
        }
        let member = |structure: &str, member: &str| required_member(&btf, structure, member);
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
        let alloc_time = btf.member_offset("request", "alloc_time_ns");
        let (bio_issue, bio_issue_kind) = bio_issue(&btf);
        let (queue_flags, queue_has_issue_times) = issue_time_flag(&btf).unwrap_or_default();
        let requeue_request = requeue_request(&btf);
        let walk = walk_members(&btf);
        let layout = walk.unwrap_or_default();
        let with_workloads = with_workload_members(&btf, layout);
        let layout = with_workloads.unwrap_or(layout);
        let with_tag_waits = walk.and_then(|_| with_tag_wait_members(&btf, layout));
        let layout = with_tag_waits.unwrap_or(layout);
        let layout = with_disk_id(&btf, layout)?;
        let layout = KernelLayout {
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
            flush_sequence: flag("__RQF_FLUSH_SEQ", FLUSH_SEQ_BIT_BEFORE_6_11)?,
            io_stat: flag("__RQF_IO_STAT", IO_STAT_BIT_BEFORE_6_11)?,
            op_flush: op("flush")?,
            op_passthrough: op("scsi_in").or_else(|_| op("drv_in"))?,
            status_is_errno: u32::from(!abilities.has(Ability::CompletionStatuses)),
            sector: member("request", "__sector")?,
            alloc_time_ns: alloc_time.unwrap_or(0),
            has_alloc_time: u32::from(alloc_time.is_some()),
            bio_issue,
            bio_issue_kind,
            queue_flags,
            queue_has_issue_times,
            requeue_request: requeue_request.unwrap_or(0),
            ..layout
        };
        // This enumerator was added in the release that renumbered the statuses.
        let statuses_since_6_10 = btf.enumerator("BIO_ZONE_WRITE_PLUGGING").is_some();
        let volumes = VolumeTracing::resolve(&btf, &ops);
        Ok(Self {
            layout,
            ops,
            statuses_since_6_10,
            complete: btf
                .typedef_id(&tracepoint(COMPLETE))
                .ok_or(UnsupportedKernel::Lacks(Ability::TracepointTypes))?,
            requeue: requeue_request.and_then(|_| btf.typedef_id(&tracepoint(REQUEUE))),
            tag_wait: with_tag_waits.and_then(|_| btf.typedef_id(&tracepoint(TAG_WAIT))),
            abilities,
            can_walk: walk.is_some(),
            has_workloads: with_workloads.is_some(),
            names: names::layout(&btf),
            volumes,
            link_members: link_members(&btf),
        })
    }

    /// Encodes the tracepoints for aya, with their ids from the kernel's BTF. aya looks up nothing else, and would need 15 MiB to
    /// parse the whole BTF.
    pub fn tracepoints(&self) -> Result<aya::Btf, aya::BtfError> {
        let known = [(Some(self.complete), COMPLETE), (self.requeue, REQUEUE), (self.tag_wait, TAG_WAIT)];
        let typedefs = known.into_iter().filter_map(|(id, name)| Some((id?, tracepoint(name)))).collect();
        aya::Btf::parse(&btf::encode_typedefs(&typedefs), aya::Endianness::default())
    }

    #[must_use]
    pub const fn has(&self, ability: Ability) -> bool {
        self.abilities.has(ability)
    }

    /// The value of the label `op` for this op.
    #[must_use]
    pub fn op_name(&self, op: u32) -> String {
        self.ops.get(&op).cloned().unwrap_or_else(|| format!("op_{op}"))
    }
}

fn required_member(btf: &Btf<'_>, structure: &str, member: &str) -> Result<u32, UnsupportedKernel> {
    btf.member_offset(structure, member)
        .ok_or_else(|| UnsupportedKernel::Missing(format!("member {member} in struct {structure}")))
}

/// Adds the members that lead to the id of a disk: its sequence number or, before 5.15, the inode number of its sysfs directory.
fn with_disk_id(btf: &Btf<'_>, layout: KernelLayout) -> Result<KernelLayout, UnsupportedKernel> {
    if let Some(disk_id) = btf.member_offset("gendisk", "diskseq") {
        return Ok(KernelLayout { disk_id, id_is_sequence: 1, ..layout });
    }
    let member = |structure: &str, member: &str| required_member(btf, structure, member);
    // Before 5.5, the id also had the number's generation, which stat(2) does not show.
    if btf.nested_offset("kernfs_node", &["id", "generation"]).is_some() {
        return Err(UnsupportedKernel::Missing("64-bit member id in struct kernfs_node".into()));
    }
    let directory = member("device", "kobj")? + member("kobject", "sd")?;
    let part0 = member("gendisk", "part0")?;
    let layout = match btf.member_offset("hd_struct", "__dev") {
        Some(device) => KernelLayout { disk_directory: part0 + device + directory, ..layout },
        None => KernelLayout {
            disk_directory: member("block_device", "bd_device")? + directory,
            disk_part0: part0,
            part0_is_pointer: 1,
            ..layout
        },
    };
    Ok(KernelLayout { disk_id: member("kernfs_node", "id")?, ..layout })
}

/// The ops of `enum req_op`, called `enum req_opf` before 6.0.
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

/// Returns the layout's `bio_issue` and `bio_issue_kind`.
fn bio_issue(btf: &Btf<'_>) -> (u32, u32) {
    let issue = |member: &str, kind| btf.member_offset("bio", member).map(|offset| (offset, kind));
    issue("bi_issue", bio_issue::VALUE)
        .or_else(|| issue("issue_time_ns", bio_issue::NANOSECONDS))
        .unwrap_or_default()
}

/// Returns the layout's `queue_flags` and `queue_has_issue_times`. `None` before 6.18, where bios have a different timestamp.
fn issue_time_flag(btf: &Btf<'_>) -> Option<(u32, u32)> {
    let bit = u32::try_from(btf.enumerator("QUEUE_FLAG_BIO_ISSUE_TIME")?).ok()?;
    Some((btf.member_offset("request_queue", "queue_flags")?, 1_u32.checked_shl(bit)?))
}

/// Returns the offset of the request in the arguments of `block_rq_requeue`. `None` if that tracepoint does not exist or has other
/// arguments.
fn requeue_request(btf: &Btf<'_>) -> Option<u32> {
    // The first parameter is private data.
    match btf.parameter_count(&tracepoint(REQUEUE))? {
        2 => Some(0),
        3 => Some(size_of::<u64>() as u32),
        _ => None,
    }
}

/// Returns a layout with only the members that are needed to survey requests in flight. `None` if one is missing.
fn walk_members(btf: &Btf<'_>) -> Option<KernelLayout> {
    Some(KernelLayout {
        task_files: btf.member_offset("task_struct", "files")?,
        files_fdt: btf.member_offset("files_struct", "fdt")?,
        fdt_fd: btf.member_offset("fdtable", "fd")?,
        file_inode: btf.member_offset("file", "f_inode")?,
        inode_private: btf.member_offset("inode", "i_private")?,
        kernfs_priv: btf.member_offset("kernfs_node", "priv")?,
        hctx_kobj: btf.member_offset("blk_mq_hw_ctx", "kobj")?,
        hctx_tags: btf.member_offset("blk_mq_hw_ctx", "tags")?,
        hctx_sched_tags: btf.member_offset("blk_mq_hw_ctx", "sched_tags")?,
        tags_nr: btf.member_offset("blk_mq_tags", "nr_tags")?,
        tags_static_rqs: btf.member_offset("blk_mq_tags", "static_rqs")?,
        request_hctx: btf.member_offset("request", "mq_hctx")?,
        ..KernelLayout::default()
    })
}

/// Adds the members that tell whose tags a task waits for. `None` if the tracepoint `block_rq_tag_wait` does not exist or has
/// other arguments than queue, hardware queue, whether the tags are the scheduler's, and the flags of the allocation.
fn with_tag_wait_members(btf: &Btf<'_>, layout: KernelLayout) -> Option<KernelLayout> {
    let typedef = tracepoint(TAG_WAIT);
    // The first parameter is private data. Pointers have no name.
    let types = (1..btf.parameter_count(&typedef)?).map(|index| btf.parameter_type(&typedef, index));
    // Like the disk of a request, since 5.17.
    let finds_disk = btf.member_offset("request", "rq_disk").is_none();
    let is_known = finds_disk && types.eq(["", "", "bool", "unsigned int"].map(Some));
    let req_reserved = u32::try_from(btf.enumerator("BLK_MQ_REQ_RESERVED")?).ok()?;
    let tags_depth = btf.nested_offset("blk_mq_tags", &["bitmap_tags", "sb", "depth"])?;
    is_known.then_some(KernelLayout { req_reserved, tags_depth, ..layout })
}

/// Returns the members that lead to the reference count of a link. `None` if one is missing.
fn link_members(btf: &Btf<'_>) -> Option<LinkMembers> {
    Some(LinkMembers {
        file_count: ["f_ref", "f_count"].iter().find_map(|name| btf.member_offset("file", name))?,
        file_private: btf.member_offset("file", "private_data")?,
        link_count: btf.member_offset("bpf_link", "refcnt")?,
    })
}

/// Adds the members that lead to the cgroup of a request. `None` if one is missing, for example without `CONFIG_BLK_CGROUP`.
fn with_workload_members(btf: &Btf<'_>, layout: KernelLayout) -> Option<KernelLayout> {
    let css = btf.member_offset("blkcg", "css")?;
    let of_css = |member: &str| Some(css + btf.member_offset("cgroup_subsys_state", member)?);
    let online = u32::try_from(btf.enumerator("CSS_ONLINE")?).ok()?;
    Some(KernelLayout {
        bio_blkg: btf.member_offset("bio", "bi_blkg")?,
        blkg_blkcg: btf.member_offset("blkcg_gq", "blkcg")?,
        blkcg_serial: of_css("serial_nr")?,
        blkcg_cgroup: of_css("cgroup")?,
        blkcg_flags: of_css("flags")?,
        css_online: online,
        cgroup_node: btf.member_offset("cgroup", "kn")?,
        kernfs_name: btf.member_offset("kernfs_node", "name")?,
        kernfs_parent: ["__parent", "parent"]
            .iter()
            .find_map(|name| btf.member_offset("kernfs_node", name))?,
        ..layout
    })
}

#[cfg(test)]
mod layouts;

#[cfg(test)]
mod tests {
    use aya_obj::btf::BtfKind;
    use biolat_common::kernel::KernelLayout;
    use biolat_testing::btf::{Writer, modern, modern_types as writer, tracepoint, without_tracepoint};

    use super::{Ability, Btf, Kernel, UnsupportedKernel, tracepoint as tracepoint_typedef, with_disk_id};

    #[test]
    fn resolves_modern_kernel() {
        let kernel = Kernel::from_btf(&modern("")).unwrap();
        let layout = kernel.layout;
        assert_eq!((layout.start_time_ns, layout.io_start_time_ns, layout.data_len), (104, 112, 44));
        assert_eq!((layout.disk_on_queue, layout.queue_or_disk, layout.queue_disk), (1, 0, 104));
        assert!(!kernel.has(Ability::PassthroughStatistics) && kernel.has(Ability::SubmissionTimestamps));
        assert_eq!((layout.id_is_sequence, layout.disk_id, layout.disk_directory), (1, 800, 0));
        assert_eq!((layout.flush_sequence, layout.io_stat), (1 << 1, 1 << 8));
        assert_eq!((layout.op_flush, layout.op_passthrough, layout.status_is_errno), (2, 34, 0));
        assert_eq!((layout.sector, layout.alloc_time_ns, layout.has_alloc_time), (48, 96, 1));
        assert_eq!((layout.bio_issue, layout.bio_issue_kind), (64, 1));
        assert_eq!((layout.requeue_request, kernel.requeue.is_some()), (0, true));
        assert_eq!(
            (layout.req_reserved, layout.tags_depth, kernel.tag_wait.is_some()),
            (2, 16 + 8 + 4, true)
        );
        assert_eq!((layout.task_files, layout.request_hctx, kernel.can_walk), (2000, 16, true));
        assert_eq!((layout.bio_blkg, layout.blkg_blkcg), (72, 40));
        assert_eq!((layout.blkcg_cgroup, layout.blkcg_flags, layout.blkcg_serial), (16, 100, 104));
        assert_eq!((layout.css_online, layout.cgroup_node, kernel.has_workloads), (2, 256, true));
        assert_eq!((layout.kernfs_parent, layout.kernfs_name), (8, 16));
        assert!(kernel.statuses_since_6_10);
        assert_eq!(kernel.op_name(34), "drv_in");
        assert_eq!(kernel.op_name(36), "op_36");
    }

    #[test]
    fn resolves_old_kernel_with_disk_on_request() {
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
            "__sector",
        ]
        .iter()
        .zip(0..)
        .map(|(&name, index)| (name, int, index * 8))
        .collect::<Vec<_>>();
        writer.structure(4, "request", &members);
        writer.structure(4, "gendisk", &[("part0", int, 64)]);
        writer.structure(4, "hd_struct", &[("__dev", int, 24)]);
        writer.structure(4, "device", &[("kobj", int, 8)]);
        writer.structure(4, "kobject", &[("sd", int, 48)]);
        writer.structure(4, "kernfs_node", &[("id", int, 96)]);
        writer.enumeration("req_opf", &[("REQ_OP_FLUSH", 2), ("REQ_OP_SCSI_IN", 32), ("REQ_OP_DRV_IN", 34)]);
        writer.enumeration("bpf_map_type", &[("BPF_MAP_TYPE_RINGBUF", 27)]);
        tracepoint(&mut writer, "block_rq_complete", &["void", "request", "int", "int"]);
        tracepoint(&mut writer, "block_rq_requeue", &["void", "request_queue", "request"]);
        let kernel = Kernel::from_btf(&writer.finish()).unwrap();
        let layout = kernel.layout;
        assert_eq!((layout.disk_on_queue, layout.queue_or_disk), (0, 32));
        assert!(kernel.has(Ability::PassthroughStatistics) && !kernel.has(Ability::FlushStatistics));
        assert_eq!((layout.id_is_sequence, layout.disk_id), (0, 96));
        assert_eq!((layout.disk_directory, layout.part0_is_pointer), (64 + 24 + 8 + 48, 0));
        assert_eq!((layout.flush_sequence, layout.io_stat), (1 << 4, 1 << 13));
        assert_eq!((layout.op_passthrough, layout.status_is_errno), (32, 1));
        assert_eq!((layout.sector, layout.has_alloc_time, layout.bio_issue_kind), (64, 0, 0));
        assert_eq!((layout.requeue_request, kernel.requeue.is_some()), (8, true));
    }

    #[test]
    fn rejects_ids_with_a_generation() {
        let mut writer = Writer::new();
        let int = writer.int("int");
        let numbers = writer.structure(4, "", &[("ino", int, 0), ("generation", int, 4)]);
        let id = writer.structure(5, "kernfs_node_id", &[("", numbers, 0), ("id", int, 0)]);
        writer.structure(4, "kernfs_node", &[("id", id, 96)]);
        let bytes = writer.finish();
        let found = with_disk_id(&Btf::parse(&bytes).unwrap(), KernelLayout::default());
        assert_eq!(found, Err(UnsupportedKernel::Missing("64-bit member id in struct kernfs_node".into())));
    }

    #[test]
    fn optional_members_may_be_missing() {
        let whole = Kernel::from_btf(&modern("")).unwrap();
        let without = |member| Kernel::from_btf(&modern(member)).unwrap();
        let kernel = |layout| Kernel { layout, ..whole.clone() };

        let no_alloc_time = KernelLayout { alloc_time_ns: 0, has_alloc_time: 0, ..whole.layout };
        assert_eq!(without("alloc_time_ns"), kernel(no_alloc_time));
        let no_issue = KernelLayout { bio_issue: 0, bio_issue_kind: 0, ..whole.layout };
        let abilities = whole.abilities.without(Ability::SubmissionTimestamps);
        assert_eq!(without("bi_issue"), Kernel { abilities, ..kernel(no_issue) });
        assert_eq!(without("block_rq_requeue"), Kernel { requeue: None, ..whole.clone() });

        let no_tag_waits = KernelLayout { req_reserved: 0, tags_depth: 0, ..whole.layout };
        assert_eq!(without("block_rq_tag_wait"), Kernel { tag_wait: None, ..kernel(no_tag_waits) });

        let no_walk = KernelLayout {
            task_files: 0,
            files_fdt: 0,
            fdt_fd: 0,
            file_inode: 0,
            inode_private: 0,
            kernfs_priv: 0,
            hctx_kobj: 0,
            hctx_tags: 0,
            hctx_sched_tags: 0,
            tags_nr: 0,
            tags_static_rqs: 0,
            request_hctx: 0,
            ..no_tag_waits
        };
        assert_eq!(without("mq_hctx"), Kernel { can_walk: false, tag_wait: None, ..kernel(no_walk) });

        let no_workloads = KernelLayout {
            bio_blkg: 0,
            blkg_blkcg: 0,
            blkcg_serial: 0,
            blkcg_cgroup: 0,
            blkcg_flags: 0,
            css_online: 0,
            cgroup_node: 0,
            kernfs_name: 0,
            kernfs_parent: 0,
            ..whole.layout
        };
        let abilities = whole.abilities.without(Ability::Cgroups);
        assert_eq!(without("bi_blkg"), Kernel { abilities, has_workloads: false, ..kernel(no_workloads) });
    }

    #[test]
    fn leaves_out_tag_waits_with_other_arguments() {
        for parameters in [
            &["void", "", "", "bool"][..],
            &["void", "", "", "bool", "blk_status_t"],
            &["void", "", "", "bool", "unsigned int", ""],
        ] {
            let mut writer = writer("block_rq_tag_wait");
            tracepoint(&mut writer, "block_rq_tag_wait", parameters);
            let kernel = Kernel::from_btf(&writer.finish()).unwrap();
            assert_eq!((kernel.tag_wait, kernel.layout.tags_depth), (None, 0), "{parameters:?}");
        }
    }

    #[test]
    fn tracepoints_keep_kernel_type_ids() {
        let kernel = Kernel::from_btf(&modern("")).unwrap();
        let id = |kernel: &Kernel, name: &str| {
            kernel.tracepoints().unwrap().id_by_type_name_kind(name, BtfKind::Typedef).ok()
        };
        let types = modern("");
        let all = aya::Btf::parse(&types, aya::Endianness::default()).unwrap();
        for name in ["block_rq_complete", "block_rq_requeue", "block_rq_tag_wait"].map(tracepoint_typedef) {
            let name = name.as_str();
            let expected = all.id_by_type_name_kind(name, BtfKind::Typedef).unwrap();
            assert_eq!(id(&kernel, name), Some(expected));
        }
        let kernel = Kernel { requeue: None, tag_wait: None, ..kernel };
        assert_eq!(id(&kernel, "btf_trace_block_rq_requeue"), None);
    }

    #[test]
    fn error_names_missing_member() {
        let error = Kernel::from_btf(&modern("io_start_time_ns")).unwrap_err();
        assert_eq!(error, UnsupportedKernel::Missing("member io_start_time_ns in struct request".into()));
        assert!(error.to_string().contains("io_start_time_ns in struct request"), "{error}");
    }

    #[test]
    fn rejects_kernel_without_tracepoint() {
        assert_eq!(
            Kernel::from_btf(&without_tracepoint()),
            Err(UnsupportedKernel::Lacks(Ability::TracepointTypes))
        );
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

        /// Any layout or error is fine, but it must not panic.
        #[test]
        fn mutated_and_truncated_btf_never_panics(
            changes in proptest::collection::vec((0..2500_usize, proptest::prelude::any::<u8>()), 0..8),
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
