//! Tests the resolver on the BTF of real kernels. `layouts/VERSION.btf.txt` is the relevant part of a kernel's BTF as printed by
//! `bpftool btf dump file FILE format raw`, with the kernel's type ids.
//!
//! To add a kernel, run `layouts/distill FILE > layouts/VERSION.btf.txt`. FILE is `/sys/kernel/btf/vmlinux` on a machine that
//! runs the kernel, or the output of the kernel's `scripts/extract-vmlinux` on a packaged kernel. Fill in the kernel's column
//! below and in the modules of `layouts` with a tool other than the resolver: pahole on FILE, or a compiler's `offsetof` on the
//! header printed by `bpftool btf dump file FILE format c`. That header may declare one-byte enums, such as `rw_hint` in
//! `struct bio`, as four-byte ones; these need `__attribute__((packed))`.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::PathBuf;

use biolat_common::kernel::KernelLayout;
use biolat_testing::btf::{Member, Writer};

use super::{Ability, Kernel, LinkMembers, UnsupportedKernel};

/// Lists the members of a struct with their names. A member that is neither listed nor left out does not compile.
macro_rules! members {
    ($type:ident = $value:expr; $($member:ident),+ $(; without $left_out:ident)?) => {{
        let $type { $($member,)+ $($left_out: _)? } = $value;
        vec![$((stringify!($member), $member)),+]
    }};
}

mod abilities;
mod enterprise;
mod names;
mod processes;
mod volumes;

/// A kernel whose BTF does not describe tracepoints.
const UNSUPPORTED: &str = "5.4";

/// All are for x86-64; 5.10, 6.1, 6.12 and 7.3 are Debian kernels.
const KERNELS: [&str; 13] =
    ["5.10", "5.11", "5.13", "5.16", "5.19", "6.1", "6.7", "6.8", "6.11", "6.12", "6.18", "7.1", "7.3"];

// One column per kernel.
#[rustfmt::skip]
const RESOLVED: [(&str, [u32; KERNELS.len()]); 60] = [
    //                        5.10   5.11   5.13   5.16   5.19    6.1    6.7    6.8   6.11   6.12   6.18    7.1    7.3
    ("cmd_flags",           [   24,    24,    24,    24,    24,    24,    24,    24,    24,    24,    24,    24,    24]),
    ("rq_flags",            [   28,    28,    28,    28,    28,    28,    28,    28,    28,    28,    28,    28,    28]),
    ("data_len",            [   40,    40,    40,    44,    44,    44,    44,    44,    44,    44,    44,    44,    44]),
    ("bio",                 [   56,    56,    56,    56,    56,    56,    56,    56,    56,    56,    56,    56,    56]),
    ("start_time_ns",       [  184,   184,   176,   112,   104,   104,   104,   104,   104,   104,   104,   104,   104]),
    ("io_start_time_ns",    [  192,   192,   184,   120,   112,   112,   112,   112,   112,   112,   112,   112,   112]),
    // 5.16 has both request_queue.disk (at 120) and request.rq_disk; the latter takes one fewer read.
    ("queue_or_disk",       [  160,   160,   160,    88,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("queue_disk",          [    0,     0,     0,     0,   128,   160,   160,   104,   104,   104,   104,    96,    96]),
    ("disk_on_queue",       [    0,     0,     0,     0,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    ("disk_id",             [  104,   104,   104,   296,   296,   656,   528,   528,   528,   752,   520,   512,   656]),
    ("disk_directory",      [  152,   144,   144,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("id_is_sequence",      [    0,     0,     0,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    // Before 6.11 these two are macros in the kernel's headers, and not in BTF.
    ("flush_sequence",      [ 1<<4,  1<<4,  1<<4,  1<<4,  1<<4,  1<<4,  1<<4,  1<<4,  1<<1,  1<<1,  1<<1,  1<<1,  1<<1]),
    ("io_stat",             [1<<13, 1<<13, 1<<13, 1<<13, 1<<13, 1<<13, 1<<13, 1<<13,  1<<8,  1<<8,  1<<8,  1<<8,  1<<8]),
    ("op_flush",            [    2,     2,     2,     2,     2,     2,     2,     2,     2,     2,     2,     2,     2]),
    ("op_passthrough",      [   32,    32,    32,    34,    34,    34,    34,    34,    34,    34,    34,    34,    34]),
    ("status_is_errno",     [    1,     1,     1,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("sector",              [   48,    48,    48,    48,    48,    48,    48,    48,    48,    48,    48,    48,    48]),
    // This 5.13 is built without CONFIG_BLK_RQ_ALLOC_TIME and CONFIG_BLK_CGROUP.
    ("alloc_time_ns",       [  176,   176,     0,   104,    96,    96,    96,    96,    96,    96,    96,    96,    96]),
    ("has_alloc_time",      [    1,     1,     0,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    ("bio_issue",           [   80,    80,     0,    80,    80,    80,    80,    80,    80,    80,    80,    88,    88]),
    ("bio_issue_kind",      [    1,     1,     0,     1,     1,     1,     1,     1,     1,     1,     2,     2,     2]),
    ("queue_flags",         [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,    32,    32,    32]),
    ("queue_has_issue_times", [   0,     0,     0,     0,     0,     0,     0,     0,     0,     0, 1<<16, 1<<16, 1<<16]),
    ("requeue_request",     [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("task_files",          [ 2808,  2848,  1832,  3080,  3080,  3048,  2936,  2936,  2968,  3048,  2984,  3072,  3488]),
    ("files_fdt",           [   32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32,    32]),
    ("fdt_fd",              [    8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8]),
    ("file_inode",          [   32,    32,    32,    32,    32,    32,   168,   168,   168,    40,    32,    32,    32]),
    ("inode_private",       [  592,   592,   552,   624,   624,   624,   592,   592,   584,   616,   584,   552,   552]),
    ("kernfs_priv",         [   96,    96,    96,    96,    96,    96,    96,    96,   104,   104,   104,   104,   104]),
    ("hctx_kobj",           [  448,   448,   456,   400,   400,   400,   392,   384,   384,   384,   384,   384,   384]),
    ("hctx_tags",           [  312,   312,   320,   320,   320,   320,   320,   320,   320,   320,   320,   320,   320]),
    ("hctx_sched_tags",     [  320,   320,   328,   328,   328,   328,   328,   328,   328,   328,   328,   328,   328]),
    ("tags_nr",             [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("tags_static_rqs",     [  168,   168,   152,   136,   136,   152,   152,   152,   152,   152,   152,   152,   152]),
    ("request_hctx",        [   16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16]),
    ("bio_blkg",            [   72,    72,     0,    72,    72,    72,    72,    72,    72,    72,    72,    80,    80]),
    ("blkg_blkcg",          [   40,    40,     0,    40,    40,    40,    40,    40,    40,    40,    40,    40,    40]),
    ("blkcg_serial",        [   88,    88,     0,    88,    88,    88,    88,    88,    88,    88,    80,    80,    80]),
    ("blkcg_cgroup",        [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("blkcg_flags",         [   84,    84,     0,    84,    84,    84,    84,    84,    84,    84,    76,    76,    76]),
    ("css_online",          [    2,     2,     0,     2,     2,     2,     2,     2,     2,     2,     2,     2,     2]),
    ("cgroup_node",         [  248,   248,     0,   248,   248,   248,   248,   248,   248,   256,   256,   256,   296]),
    ("kernfs_name",         [   16,    16,     0,    16,    16,    16,    16,    16,    16,    16,    16,    16,    16]),
    ("kernfs_parent",       [    8,     8,     0,     8,     8,     8,     8,     8,     8,     8,     8,     8,     8]),
    ("disk_part0",          [    0,    56,    64,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("part0_is_pointer",    [    0,     1,     1,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("req_reserved",        [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     2]),
    ("tags_depth",          [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,    16]),
    ("file_count",          [   56,    56,    56,    56,    56,    56,    24,    24,    24,     0,   176,   168,   168]),
    ("file_private",        [  200,   200,   200,   200,   200,   200,   200,   200,   200,    32,    24,    24,    24]),
    ("link_count",          [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0]),
    ("has_requeue",         [    1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    ("has_tag_wait",        [    0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     0,     1]),
    ("can_walk",            [    1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    ("has_workloads",       [    1,     1,     0,     1,     1,     1,     1,     1,     1,     1,     1,     1,     1]),
    ("statuses_since_6_10", [    0,     0,     0,     0,     0,     0,     0,     0,     1,     1,     1,     1,     1]),
    // Renumbered twice, with backports to stable kernels: this 6.1 has the numbers of 6.18.
    ("zone_append",         [   21,    13,    13,    13,    13,     7,    13,     7,     7,     7,     7,     7,     7]),
    ("zone_reset",          [   17,    15,    15,    15,    15,    17,    15,    13,    13,    17,    17,    17,    17]),
];

#[test]
fn agrees_with_other_readers_on_every_kernel() {
    for (column, version) in KERNELS.into_iter().enumerate() {
        let kernel =
            Kernel::from_btf(&btf(version)).unwrap_or_else(|error| panic!("Linux {version}: {error}"));
        let expected = RESOLVED.map(|(name, kernels)| (name, kernels[column]));
        assert_eq!(resolved(&kernel), expected, "Linux {version}");
    }
}

#[test]
fn rejects_kernel_without_tracepoints_in_btf() {
    assert_eq!(Kernel::from_btf(&btf(UNSUPPORTED)), Err(UnsupportedKernel::Lacks(Ability::TracepointTypes)));
}

#[test]
fn every_excerpt_has_a_column() {
    let files = fs::read_dir(directory()).unwrap().map(|file| file.unwrap().file_name());
    let excerpts = files.filter_map(|name| Some(name.to_str()?.strip_suffix(".btf.txt")?.to_owned()));
    let tested = KERNELS.into_iter().chain([UNSUPPORTED]).map(str::to_owned);
    assert_eq!(excerpts.collect::<BTreeSet<_>>(), tested.collect());
}

/// Lists a kernel's values in the order of the table. Adding a field to `KernelLayout` does not compile until it is added here.
fn resolved(kernel: &Kernel) -> Vec<(&'static str, u32)> {
    let layout = members! {
        KernelLayout = kernel.layout;
        cmd_flags, rq_flags, data_len, bio, start_time_ns, io_start_time_ns, queue_or_disk, queue_disk,
        disk_on_queue, disk_id, disk_directory, id_is_sequence, flush_sequence, io_stat, op_flush,
        op_passthrough, status_is_errno, sector, alloc_time_ns, has_alloc_time, bio_issue, bio_issue_kind,
        queue_flags, queue_has_issue_times, requeue_request, task_files, files_fdt, fdt_fd, file_inode,
        inode_private, kernfs_priv, hctx_kobj, hctx_tags, hctx_sched_tags, tags_nr, tags_static_rqs,
        request_hctx, bio_blkg, blkg_blkcg, blkcg_serial, blkcg_cgroup, blkcg_flags, css_online,
        cgroup_node, kernfs_name, kernfs_parent, disk_part0, part0_is_pointer, req_reserved, tags_depth
    };
    let LinkMembers { file_count, file_private, link_count } = kernel.link_members.unwrap();
    let op = |name: &'static str| (name, *kernel.ops.iter().find(|(_, op)| *op == name).unwrap().0);
    let known = [
        ("file_count", file_count),
        ("file_private", file_private),
        ("link_count", link_count),
        ("has_requeue", u32::from(kernel.requeue.is_some())),
        ("has_tag_wait", u32::from(kernel.tag_wait.is_some())),
        ("can_walk", u32::from(kernel.can_walk)),
        ("has_workloads", u32::from(kernel.has_workloads)),
        ("statuses_since_6_10", u32::from(kernel.statuses_since_6_10)),
        op("zone_append"),
        op("zone_reset"),
    ];
    layout.into_iter().chain(known).collect()
}

fn directory() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "src/kernel/layouts"].iter().collect()
}

/// Encodes the BTF that a kernel's excerpt describes. Ids in BTF have no gaps, so a type's id becomes its position in the
/// excerpt. References to types outside the excerpt become void.
fn btf(version: &str) -> Vec<u8> {
    writer(version).finish()
}

fn writer(version: &str) -> Writer {
    written(&excerpt(version))
}

fn excerpt(version: &str) -> String {
    fs::read_to_string(directory().join(format!("{version}.btf.txt"))).unwrap()
}

fn written(excerpt: &str) -> Writer {
    let mut records: Vec<ExcerptEntry<'_>> = Vec::new();
    for line in excerpt.lines().map(Line::new) {
        match (line.subject, records.last_mut()) {
            ("", Some(record)) => record.entries.push(line),
            _ => records.push(ExcerptEntry { head: line, entries: Vec::new() }),
        }
    }
    let ids: HashMap<u32, u32> = records.iter().map(ExcerptEntry::id).zip(1..).collect();
    let mut writer = Writer::new();
    for record in &records {
        let written = record.write(&mut writer, &|id| ids.get(&id).copied().unwrap_or(0));
        assert_eq!(written, ids[&record.id()]);
    }
    writer
}

/// A record such as `[10] STRUCT 'request' size=248 vlen=31`, with the lines that follow it.
struct ExcerptEntry<'a> {
    head: Line<'a>,
    entries: Vec<Line<'a>>,
}

impl<'a> ExcerptEntry<'a> {
    fn id(&self) -> u32 {
        self.head.subject.trim_start_matches('[').split(']').next().unwrap().parse().unwrap()
    }

    fn write(&self, writer: &mut Writer, dense: &dyn Fn(u32) -> u32) -> u32 {
        let Self { head, entries } = self;
        let referred = |line: &Line<'_>| dense(line.number("type_id"));
        let member = |entry: &Line<'a>| Member {
            name: entry.name,
            of: referred(entry),
            bits: entry.number("bits_offset"),
            width: entry.find_number("bitfield_size").unwrap_or(0),
        };
        let mut structure = |kind| {
            let members: Vec<_> = entries.iter().map(member).collect();
            writer.sized_structure(kind, head.name, head.number("size"), &members)
        };
        match head.subject.split(' ').nth(1).unwrap() {
            "INT" => writer.int(head.name),
            "PTR" => writer.pointer(referred(head)),
            "CONST" => writer.constant(referred(head)),
            "TYPEDEF" => writer.typedef(head.name, referred(head)),
            "STRUCT" => structure(4),
            "UNION" => structure(5),
            "ENUM" => {
                let values = entries.iter().map(|entry| (entry.name, entry.number("val")));
                writer.enumeration(head.name, &values.collect::<Vec<_>>())
            }
            "FUNC_PROTO" => writer.prototype(&entries.iter().map(referred).collect::<Vec<_>>()),
            kind => panic!("cannot write a {kind}"),
        }
    }
}

/// A line such as `SUBJECT 'name' attribute=number attribute=number`. Members, enumerators and parameters have no subject.
struct Line<'a> {
    subject: &'a str,
    name: &'a str,
    attributes: &'a str,
}

impl<'a> Line<'a> {
    fn new(text: &'a str) -> Self {
        let mut parts = text.splitn(3, '\'').map(str::trim);
        let [subject, name, attributes] = [(); 3].map(|()| parts.next().unwrap());
        Self { subject, name: if name == "(anon)" { "" } else { name }, attributes }
    }

    fn number(&self, attribute: &str) -> u32 {
        self.find_number(attribute).expect(attribute)
    }

    fn find_number(&self, attribute: &str) -> Option<u32> {
        let mut pairs = self.attributes.split(' ').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(name, number)| (name == attribute).then(|| number.parse().unwrap()))
    }
}
