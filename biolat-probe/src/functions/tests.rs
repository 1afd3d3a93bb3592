//! Tests with BTF built byte by byte: the kernel's, and a module's that refers to it.

use std::collections::BTreeSet;

use biolat_common::names::{Function, NO_OFFSET, class, kind};
use biolat_testing::btf::{Member, Writer};

use super::{Known, Types, known, parse_symbol};
use crate::btf::Btf;

/// Returns the BTF of a kernel like Linux 6.12, and of its module `dm_mod`.
fn kernel_and_module() -> (Vec<u8>, Vec<u8>) {
    let mut kernel = Writer::new();
    let int = kernel.int("int");
    let pointer = kernel.pointer(int);
    let submit = kernel.structure(4, "", &[("iter", pointer, 0), ("waiter", pointer, 8)]);
    let aio = kernel.structure(4, "", &[("work", int, 0)]);
    let either = kernel.structure(5, "", &[("submit", submit, 0), ("aio", aio, 0)]);
    let members = [("iocb", pointer, 8), ("wait_for_completion", int, 56), ("", either, 64)];
    kernel.structure(4, "iomap_dio", &members);
    kernel.structure(4, "blkdev_dio", &[("iocb", pointer, 8), ("flags", int, 20), ("bio", int, 64)]);
    kernel.structure(4, "buffer_head", &[("b_end_io", pointer, 56)]);
    let mut module = kernel.module();
    module.structure(4, "dm_target_io", &[("io", pointer, 16), ("clone", int, 40)]);
    module.structure(4, "dm_io", &[("orig_bio", pointer, 72)]);
    (kernel.finish(), module.finish())
}

fn find<'a>(known: &'a [Known], name: &str) -> Option<&'a Known> {
    known.iter().find(|known| known.name == name)
}

fn function(kind: u32, container: u32, offsets: [u32; 3]) -> Function {
    Function { kind, container, offsets }
}

const NONE: u32 = NO_OFFSET;

#[test]
fn knows_functions_whose_structs_exist() {
    let (kernel, module) = kernel_and_module();
    let vmlinux = Btf::parse(&kernel).unwrap();
    let all = known(&Types { vmlinux: &vmlinux, all: vec![vmlinux.parse_module(&module).unwrap()] });
    let expected = [
        ("bio_chain_endio", function(kind::CLONE, NONE, [NONE; 3])),
        ("clone_endio", function(kind::CLONE, 40, [16, 72, NONE])),
        ("iomap_dio_bio_end_io", function(kind::DIRECT, NONE, [8, 56, 72])),
        ("blkdev_bio_end_io", function(kind::BLOCK_DEVICE, NONE, [8, 20, 2])),
        ("blkdev_bio_end_io_async", function(kind::BLOCK_DEVICE, 64, [8, 8, 0])),
        ("blkdev_bio_end_io_simple", function(kind::WAITER, NONE, [NONE; 3])),
        ("submit_bio_wait_endio", function(kind::COMPLETION, NONE, [NONE; 3])),
        ("end_bio_bh_io_sync", function(kind::BUFFER_HEAD, NONE, [56, NONE, NONE])),
        ("journal_end_buffer_io_sync", function(kind::CLASS, NONE, [class::JOURNAL.into(), NONE, NONE])),
        ("end_swap_bio_read", function(kind::CLASS, NONE, [class::SWAP.into(), NONE, NONE])),
        ("io_complete_rw", function(kind::IO_URING, NONE, [NONE; 3])),
        ("aio_complete_rw", function(kind::LIBAIO, NONE, [NONE; 3])),
    ];
    for (name, function) in expected {
        assert_eq!(find(&all, name).map(|known| known.function), Some(function), "{name}");
    }
    for name in ["crypt_endio", "md_end_clone_io", "raid1_end_read_request", "raid5_align_endio"] {
        assert!(find(&all, name).is_none(), "{name}");
    }
    assert!(find(&all, "btrfs_simple_end_io").is_none());
    assert!(find(&all, "dio_bio_end_io").is_none());
}

#[test]
fn modules_are_optional() {
    let (kernel, _) = kernel_and_module();
    let all = known(&Types { vmlinux: &Btf::parse(&kernel).unwrap(), all: Vec::new() });
    assert!(find(&all, "clone_endio").is_none());
    assert!(find(&all, "iomap_dio_bio_end_io").is_some());
}

#[test]
fn flag_of_block_device_may_be_a_bit_field() {
    let mut writer = Writer::new();
    let int = writer.int("bool");
    let bit = |name, bits| Member { name, of: int, bits, width: 1 };
    let iocb = Member { name: "iocb", of: int, bits: 0, width: 0 };
    let members = [iocb, bit("multi_bio", 160), bit("should_dirty", 161), bit("is_sync", 162)];
    writer.sized_structure(4, "blkdev_dio", 24, &members);
    let kernel = writer.finish();
    let all = known(&Types { vmlinux: &Btf::parse(&kernel).unwrap(), all: Vec::new() });
    let expected = function(kind::BLOCK_DEVICE, NONE, [0, 20, 1 << 2]);
    assert_eq!(find(&all, "blkdev_bio_end_io").map(|known| known.function), Some(expected));
}

#[test]
fn waiter_and_its_flag_go_together() {
    let mut writer = Writer::new();
    let int = writer.int("int");
    writer.structure(4, "iomap_dio", &[("iocb", int, 8), ("wait_for_completion", int, 56)]);
    let kernel = writer.finish();
    let all = known(&Types { vmlinux: &Btf::parse(&kernel).unwrap(), all: Vec::new() });
    let expected = function(kind::DIRECT, NONE, [8, NONE, NONE]);
    assert_eq!(find(&all, "iomap_dio_bio_end_io").map(|known| known.function), Some(expected));
}

#[test]
fn kernel_prints_module_after_name() {
    let known = |module| Known { name: "clone_endio", module, function: Function::default() };
    assert_eq!(known("dm_mod").symbols(), ["clone_endio", "clone_endio [dm_mod]"]);
    assert_eq!(known("").symbols(), ["clone_endio"]);
}

#[test]
fn parses_symbols() {
    let names = BTreeSet::from(["clone_endio", "bio_chain_endio"]);
    let parse = |line| parse_symbol(line, &names);
    let found = |name: &str, address| Some((name.to_owned(), address));
    assert_eq!(parse("ffffffff81234560 t bio_chain_endio"), found("bio_chain_endio", 0xffff_ffff_8123_4560));
    let module = "ffffffffc0a31000 t clone_endio\t[dm_mod]";
    assert_eq!(parse(module), found("clone_endio", 0xffff_ffff_c0a3_1000));
    assert_eq!(parse("ffffffff81234560 t clone_endio.cold"), None);
    assert_eq!(parse("ffffffff81234560 t other"), None);
    // Addresses are hidden from this process.
    assert_eq!(parse("0000000000000000 t clone_endio"), None);
    for malformed in ["", "ffffffff81234560", "ffffffff81234560 t", "clone_endio t clone_endio"] {
        assert_eq!(parse(malformed), None, "{malformed:?}");
    }
    // Longer than an address.
    assert_eq!(parse("1ffffffff81234560 t clone_endio"), None);
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Any functions or an error are fine, but it must not panic.
    #[test]
    fn mutated_and_truncated_module_never_panics(
        changes in proptest::collection::vec((0..400_usize, proptest::prelude::any::<u8>()), 0..8),
        end in 0..400_usize,
    ) {
        let (kernel, mut module) = kernel_and_module();
        for (at, byte) in changes {
            let length = module.len();
            module[at % length] = byte;
        }
        module.truncate(end);
        let vmlinux = Btf::parse(&kernel).unwrap();
        if let Ok(btf) = vmlinux.parse_module(&module) {
            known(&Types { vmlinux: &vmlinux, all: vec![btf] });
        }
    }

    #[test]
    fn garbage_is_no_symbol(line in ".*") {
        proptest::prop_assert_eq!(parse_symbol(&line, &BTreeSet::from(["clone_endio"])), None);
    }
}
