//! Tests the layout of the structs that lead to the file and the process of an I/O, on the same kernels. The figures are from
//! `pahole -F btf -C STRUCT FILE`: for a member of a member, the sum of both offsets.

use biolat_common::names::{Function, NO_OFFSET, NamesLayout};

use super::{KERNELS, btf};
use crate::{
    btf::Btf,
    functions::{Types, known},
    kernel::Kernel,
};

const NONE: u32 = NO_OFFSET;

// One column per kernel.
#[rustfmt::skip]
const RESOLVED: [(&str, [u32; KERNELS.len()]); 60] = [
    //                          5.10    5.11    5.13    5.16    5.19     6.1     6.7     6.8    6.11    6.12    6.18     7.1     7.3
    ("has_symbols",          [     0,      0,      1,      1,      1,      1,      1,      1,      1,      1,      1,      1,      1]),
    ("bio_end_io",           [    56,     56,     56,     56,     56,     56,     56,     56,     56,     56,     56,     64,     64]),
    ("bio_private",          [    64,     64,     64,     64,     64,     64,     64,     64,     64,     64,     64,     72,     72]),
    ("bio_flags",            [    16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16]),
    ("metadata_flag",        [ 1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12,  1<<12]),
    ("swap_flag",            [ 1<<26,  1<<26,  1<<26,  1<<26,  1<<25,  1<<25,  1<<24,  1<<24,  1<<24,  1<<24,  1<<24,  1<<24,  1<<24]),
    ("bio_vectors",          [   112,    112,     80,    120,    120,    112,    104,    104,    104,    112,    104,     32,     32]),
    ("bio_index",            [    44,     44,     44,     44,     44,     44,     44,     44,     44,     44,     44,     52,     52]),
    ("bio_size",             [    40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     48,     48]),
    ("bio_pool",             [   120,    120,     88,    128,    128,    120,    112,    112,    112,    120,    112,    112,    128]),
    ("pool_front_pad",       [     8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8]),
    ("page_head",            [     8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8]),
    ("page_mapping",         [    24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24]),
    ("page_flags",           [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("page_in_io",           [0x8001, 0x8001, 0x8001, 0x8001, 0x8001, 0x8001,      3,      3,      3,      3,      3,      3,      3]),
    ("mapping_host",         [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("mapping_areas",        [    32,     32,     32,     72,     72,     72,     72,     72,     72,     72,     72,     64,     64]),
    ("inode_data",           [   376,    376,    360,    376,    376,    376,    360,    360,    352,    368,    352,    360,    360]),
    ("inode_number",         [    64,     64,     64,     64,     64,     64,     64,     64,     64,     64,     64,     64,     64]),
    ("inode_mode",           [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("inode_links",          [    72,     72,     72,     72,     72,     72,     72,     72,     72,     72,     72,     72,     72]),
    ("inode_device",         [    76,     76,     76,     76,     76,     76,     76,     76,     76,     76,     76,     76,     76]),
    ("inode_super",          [    40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40]),
    ("inode_dentries",       [   312,    312,    296,    312,    312,    312,    296,    296,    288,    304,    288,    296,    296]),
    ("super_device",         [    16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16]),
    ("super_magic",          [    96,     96,     96,     96,     96,     96,     96,     96,     96,     96,     96,     96,    112]),
    ("super_type",           [    40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     56]),
    ("type_name",            [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("dentry_alias",         [   176,    176,    176,    176,    176,    176,    176,    176,    176,    176,    176,    176,    176]),
    ("dentry_parent",        [    24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24]),
    ("dentry_name",          [    40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40]),
    ("iocb_file",            [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("iocb_complete",        [    16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16]),
    ("file_inode",           [    32,     32,     32,     32,     32,     32,    168,    168,    168,     40,     32,     32,     32]),
    ("file_dentry",          [    24,     24,     24,     24,     24,     24,    160,    160,    160,     72,     72,     72,     72]),
    ("file_mapping",         [   240,    216,    216,    216,    216,    216,    216,    216,    216,     24,     16,     16,     16]),
    ("task_group",           [  2236,   2316,   1308,   2500,   2500,   2420,   2396,   2396,   2428,   2436,   2444,   2540,   2876]),
    ("task_leader",          [  2296,   2376,   1368,   2560,   2560,   2480,   2456,   2456,   2488,   2496,   2504,   2600,   2936]),
    ("task_command",         [  2736,   2776,   1776,   3024,   3024,   2976,   2880,   2880,   2912,   2976,   2928,   3016,   3408]),
    ("task_memory",          [  2056,   2136,   1120,   2312,   2312,   2272,   2264,   2264,   2296,   2304,   2312,   2416,   2744]),
    ("memory_owner",         [   912,    920,   NONE,    920,    920,    928,   NONE,   NONE,   NONE,   1152,   NONE,   1480,   1528]),
    ("area_memory",          [    64,     64,     64,     64,     64,     16,     16,     16,     16,     16,     16,     16,     16]),
    ("area_node",            [    88,     88,     88,     88,     88,     40,     64,     64,     56,     56,    136,    136,    136]),
    ("anonymous_root",       [    80,     64,     64,     64,     80,     80,     80,     80,     80,     80,     80,     72,     72]),
    ("chain_node",           [    32,     32,     32,     32,     32,     32,     32,     32,     32,     32,     32,     32,     32]),
    ("chain_area",           [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("completion_tasks",     [    16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16,     16]),
    ("wait_task",            [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("wait_list",            [     8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8]),
    ("uring_task",           [    96,     96,     96,     96,     96,     96,     96,     96,    104,    104,    104,    104,    104]),
    ("uring_context_task",   [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,     16,     16,     16]),
    ("aio_context",          [    96,     96,     96,     96,     96,     96,     96,     96,     96,     96,     96,     96,     96]),
    ("aio_ring",             [   512,    512,    512,    512,    512,    512,    512,    512,    512,    512,    512,    512,    512]),
    ("queue_bytes",          [    24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24]),
    ("queue_list",           [     8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8,      8]),
    ("page_wait_page",       [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    ("page_wait_entry",      [    40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40,     40]),
    ("page_wait_task",       [    24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24,     24]),
    ("simple_bio",           [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,     64]),
    ("simple_iocb",          [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,      0]),
];

/// The fields of a [`Function`] by position.
const CONTAINER: usize = 0;
const FIRST: usize = 1;
const SECOND: usize = 2;
const THIRD: usize = 3;

/// Fields of functions whose structs are in the kernel's own BTF. dm, md and btrfs are mostly modules. Column 5.10 is first.
#[rustfmt::skip]
const FUNCTIONS: [(&str, usize, [u32; KERNELS.len()]); 16] = [
    //                                        5.10    5.11    5.13    5.16    5.19     6.1     6.7     6.8    6.11    6.12    6.18     7.1     7.3
    // `iomap_dio.iocb`.
    ("iomap_dio_bio_end_io",    FIRST,     [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    // `iomap_dio.wait_for_completion`.
    ("iomap_dio_bio_end_io",    SECOND,    [    44,     44,     44,     56,     56,     56,     56,     56,     56,     56,     56,     56,     56]),
    // `iomap_dio.submit.waiter`.
    ("iomap_dio_bio_end_io",    THIRD,     [    56,     56,     56,     72,     72,     72,     72,     72,     72,     72,     72,     72,     72]),
    // `iomap_dio_simple.bio`.
    ("iomap_dio_simple_end_io", CONTAINER, [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,     64]),
    // `iomap_dio_simple.iocb`.
    ("iomap_dio_simple_end_io", FIRST,     [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,      0]),
    // `dio.iocb`.
    ("dio_bio_end_io",          FIRST,     [   104,    104,    104,    104,    104,     96,    104,    104,    104,    104,    104,    104,    104]),
    // `blkdev_dio.iocb`.
    ("blkdev_bio_end_io",       FIRST,     [     0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0,      0]),
    // `blkdev_dio.flags`, or the byte that has `blkdev_dio.is_sync`.
    ("blkdev_bio_end_io",       SECOND,    [    20,     20,     20,     20,     20,     20,     20,     20,     20,     20,     20,     20,     20]),
    // `DIO_IS_SYNC`, or the mask of `blkdev_dio.is_sync`.
    ("blkdev_bio_end_io",       THIRD,     [  1<<2,   1<<2,   1<<2,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1,   1<<1]),
    // `blkdev_dio.bio`.
    ("blkdev_bio_end_io_async", CONTAINER, [    24,     24,     24,     64,     64,     64,     64,     64,     64,     64,     64,     64,     64]),
    // `buffer_head.b_end_io`.
    ("end_bio_bh_io_sync",      FIRST,     [    56,     56,     56,     56,     56,     56,     56,     56,     56,     56,     56,     56,   NONE]),
    // `dm_target_io.clone`.
    ("clone_endio",             CONTAINER, [  NONE,   NONE,     48,     48,     40,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE]),
    // `dm_target_io.io`.
    ("clone_endio",             FIRST,     [  NONE,   NONE,      8,      8,      8,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE]),
    // `dm_io.orig_bio`.
    ("clone_endio",             SECOND,    [  NONE,   NONE,     24,     24,     72,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE]),
    // `md_io_acct.orig_bio`.
    ("md_end_io_acct",          SECOND,    [  NONE,   NONE,   NONE,      0,      0,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE]),
    // `btrfs_bio.bio`, if there is `btrfs_bio.inode`.
    ("btrfs_simple_end_io",     CONTAINER, [  NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE,   NONE]),
];

#[test]
fn agrees_with_pahole_on_every_kernel() {
    for (column, version) in KERNELS.into_iter().enumerate() {
        let expected = RESOLVED.map(|(name, kernels)| (name, kernels[column]));
        let layout = Kernel::from_btf(&btf(version)).unwrap().names.expect(version);
        assert_eq!(resolved(layout), expected, "Linux {version}");
    }
}

#[test]
fn functions_agree_with_pahole_on_every_kernel() {
    for (column, version) in KERNELS.into_iter().enumerate() {
        let bytes = btf(version);
        let known = known(&Types { vmlinux: &Btf::parse(&bytes).unwrap(), all: Vec::new() });
        for (name, field, kernels) in FUNCTIONS {
            let function = known.iter().find(|known| known.name == name).map(|known| known.function);
            let found = function
                .map_or(NONE, |Function { container, offsets: [a, b, c], .. }| [container, a, b, c][field]);
            assert_eq!(found, kernels[column], "Linux {version}: {name}, field {field}");
        }
    }
}

/// Lists the members in the order of the table. Adding a field to `NamesLayout` does not compile until it is added here.
fn resolved(layout: NamesLayout) -> Vec<(&'static str, u32)> {
    members! {
        NamesLayout = layout;
        has_symbols, bio_end_io, bio_private, bio_flags, metadata_flag, swap_flag, bio_vectors, bio_index,
        bio_size, bio_pool, pool_front_pad, page_head, page_mapping, page_flags, page_in_io, mapping_host,
        mapping_areas, inode_data, inode_number, inode_mode, inode_links, inode_device, inode_super,
        inode_dentries, super_device, super_magic, super_type, type_name, dentry_alias, dentry_parent,
        dentry_name, iocb_file, iocb_complete, file_inode, file_dentry, file_mapping, task_group,
        task_leader, task_command, task_memory, memory_owner, area_memory, area_node, anonymous_root,
        chain_node, chain_area, completion_tasks, wait_task, wait_list, uring_task, uring_context_task,
        aio_context, aio_ring, queue_bytes, queue_list, page_wait_page, page_wait_entry, page_wait_task,
        simple_bio, simple_iocb
    }
}
