//! Tests with BTF built byte by byte, as the format's documentation specifies it.

use std::collections::BTreeMap;

use biolat_testing::btf::{Member, Writer};

use super::{Btf, MalformedBtf, encode_typedefs};

#[test]
fn finds_members_values_and_parameters() {
    let mut writer = Writer::new();
    let int = writer.int("int");
    let inner = writer.structure(4, "", &[("deep", int, 4)]);
    let either = writer.structure(5, "", &[("one", int, 0), ("", inner, 0)]);
    writer.structure(4, "request", &[("first", int, 0), ("", either, 16), ("last", int, 40)]);
    writer.enumeration("", &[("ANON_A", 3), ("ANON_B", 11)]);
    writer.enumeration("req_op", &[("REQ_OP_READ", 0), ("REQ_OP_WRITE", 1)]);
    let status = writer.typedef("blk_status_t", int);
    let prototype = writer.prototype(&[int, int, status]);
    let pointer = writer.pointer(prototype);
    let x = writer.typedef("btf_trace_x", pointer);
    let bytes = writer.finish();

    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.member_offset("request", "first"), Some(0));
    assert_eq!(btf.member_offset("request", "one"), Some(16));
    assert_eq!(btf.member_offset("request", "deep"), Some(20));
    assert_eq!(btf.member_offset("request", "last"), Some(40));
    assert_eq!(btf.member_offset("request", "none"), None);
    assert_eq!(btf.member_offset("nothing", "first"), None);
    assert_eq!(btf.enumerator("ANON_B"), Some(11));
    assert_eq!(btf.enumerator("ANON_C"), None);
    assert_eq!(btf.enumerators("req_op").collect::<Vec<_>>(), [("REQ_OP_READ", 0), ("REQ_OP_WRITE", 1)]);
    assert_eq!(btf.parameter_type("btf_trace_x", 2), Some("blk_status_t"));
    assert_eq!(btf.parameter_type("btf_trace_x", 3), Some(""));
    assert_eq!(btf.parameter_type("btf_trace_y", 0), None);
    assert_eq!((btf.typedef_id("btf_trace_x"), btf.typedef_id("btf_trace_y")), (Some(x), None));
    assert_eq!(btf.parameter_count("btf_trace_x"), Some(3));
    assert_eq!(btf.parameter_count("btf_trace_y"), None);
    assert_eq!(btf.parameter_count("blk_status_t"), None);
}

#[test]
fn finds_members_of_members() {
    let mut writer = Writer::new();
    let int = writer.int("int");
    let list = writer.structure(4, "list", &[("next", int, 0), ("previous", int, 8)]);
    let constant = writer.constant(list);
    let list_type = writer.typedef("list_t", constant);
    let pointer = writer.pointer(list);
    // A named member of an anonymous struct, in an anonymous union.
    let inner = writer.structure(4, "", &[("list", list, 8)]);
    let either = writer.structure(5, "", &[("inner", inner, 0)]);
    writer.structure(
        4,
        "wait",
        &[("direct", list, 16), ("typed", list_type, 32), ("pointer", pointer, 48), ("", either, 64)],
    );
    let bytes = writer.finish();

    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.nested_offset("wait", &["direct", "previous"]), Some(24));
    assert_eq!(btf.nested_offset("wait", &["typed", "previous"]), Some(40));
    assert_eq!(btf.nested_offset("wait", &["inner", "list", "previous"]), Some(80));
    assert_eq!(btf.nested_offset("wait", &["direct"]), btf.member_offset("wait", "direct"));
    assert_eq!(btf.nested_offset("wait", &["direct", "none"]), None);
    assert_eq!(btf.nested_offset("wait", &["none", "previous"]), None);
    // The offset behind a pointer is not one in the struct, and an int has no members.
    assert_eq!(btf.nested_offset("wait", &["pointer", "previous"]), None);
    assert_eq!(btf.nested_offset("wait", &["direct", "next", "previous"]), None);
}

#[test]
fn second_struct_of_the_same_name_is_searched() {
    let mut writer = Writer::new();
    let int = writer.int("int");
    writer.structure(4, "dio", &[("other", int, 0)]);
    writer.structure(4, "dio", &[("iocb", int, 104)]);
    let bytes = writer.finish();
    assert_eq!(Btf::parse(&bytes).unwrap().member_offset("dio", "iocb"), Some(104));
}

#[test]
fn finds_sizes_and_bit_fields() {
    let mut writer = Writer::new();
    let bool = writer.int("bool");
    let bit = |name, bits| Member { name, of: bool, bits, width: 1 };
    let whole = |name, bits| Member { name, of: bool, bits, width: 0 };
    writer.sized_structure(
        4,
        "blkdev_dio",
        152,
        &[whole("size", 64), bit("multi_bio", 160), bit("is_sync", 162), bit("last", 175), whole("bio", 192)],
    );
    writer.sized_structure(4, "wait_queue_head", 24, &[whole("head", 64)]);
    let bytes = writer.finish();

    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(btf.size("blkdev_dio"), Some(152));
    assert_eq!(btf.size("wait_queue_head"), Some(24));
    assert_eq!(btf.size("none"), None);
    assert_eq!(btf.flag("blkdev_dio", "multi_bio"), Some((20, 1)));
    assert_eq!(btf.flag("blkdev_dio", "is_sync"), Some((20, 1 << 2)));
    assert_eq!(btf.flag("blkdev_dio", "last"), Some((21, 1 << 7)));
    assert_eq!(btf.flag("blkdev_dio", "none"), None);
    assert_eq!(btf.member_offset("blkdev_dio", "bio"), Some(24));
    // Not at the beginning of a byte.
    assert_eq!(btf.member_offset("blkdev_dio", "is_sync"), None);
}

#[test]
fn module_refers_to_kernel() {
    let mut kernel = Writer::new();
    let int = kernel.int("int");
    let bio = kernel.structure(4, "bio", &[("bi_private", int, 64)]);
    let mut module = kernel.module();
    let io = module.structure(4, "dm_io", &[("orig_bio", int, 72)]);
    let inner = module.structure(4, "", &[("deep", int, 8)]);
    module.structure(4, "dm_target_io", &[("io", io, 8), ("", inner, 16), ("clone", bio, 40)]);
    module.enumeration("", &[("DM_FLAG", 3)]);
    let typedef = module.typedef("dm_t", io);
    let (kernel, module) = (kernel.finish(), module.finish());

    let vmlinux = Btf::parse(&kernel).unwrap();
    let btf = vmlinux.parse_module(&module).unwrap();
    assert_eq!(btf.member_offset("dm_io", "orig_bio"), Some(72));
    assert_eq!(btf.member_offset("dm_target_io", "clone"), Some(40));
    assert_eq!(btf.member_offset("dm_target_io", "deep"), Some(24));
    assert_eq!(btf.nested_offset("dm_target_io", &["io", "orig_bio"]), Some(80));
    assert_eq!(btf.enumerator("DM_FLAG"), Some(3));
    assert_eq!((typedef, btf.typedef_id("dm_t")), (7, Some(7)));
    // Each finds only its own types.
    assert_eq!(btf.member_offset("bio", "bi_private"), None);
    assert_eq!(vmlinux.member_offset("dm_io", "orig_bio"), None);
    assert_eq!(btf.nested_offset("dm_target_io", &["clone", "bi_private"]), None);
}

#[test]
fn module_may_name_its_members_with_strings_of_the_kernel() {
    let mut kernel = Writer::new();
    let int = kernel.int("orig_bio");
    let mut module = kernel.module();
    module.structure(4, "dm_io", &[("other", int, 72)]);
    let (kernel, mut module) = (kernel.finish(), module.finish());
    // The name of the member is in the struct's only record, after the header and the head of the record.
    module[24 + 12..][..4].copy_from_slice(&1_u32.to_le_bytes());
    let vmlinux = Btf::parse(&kernel).unwrap();
    let btf = vmlinux.parse_module(&module).unwrap();
    assert_eq!(btf.member_offset("dm_io", "orig_bio"), Some(72));
    assert_eq!(btf.member_offset("dm_io", "other"), None);
}

#[test]
fn encoded_typedefs_keep_their_ids() {
    let typedefs = BTreeMap::from([(7, "a".to_owned()), (9, "b".to_owned()), (10, "c".to_owned())]);
    let bytes = encode_typedefs(&typedefs);
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(["a", "b", "c", "d"].map(|name| btf.typedef_id(name)), [Some(7), Some(9), Some(10), None]);
}

#[test]
fn rejects_garbage() {
    assert_eq!(Btf::parse(b"").err(), Some(MalformedBtf("no header")));
    assert_eq!(Btf::parse(&[0; 24]).err(), Some(MalformedBtf("wrong magic number, or another byte order")));
    let mut writer = Writer::new();
    writer.int("int");
    let whole = writer.finish();
    for end in 0..whole.len() {
        assert!(Btf::parse(&whole[..end]).is_err(), "truncated at {end}");
    }
}

#[test]
fn search_of_recursive_struct_terminates() {
    let mut writer = Writer::new();
    // It contains itself twice: a search limited only by depth would take exponential time.
    writer.structure(4, "loop", &[("", 1, 8), ("", 1, 16)]);
    let bytes = writer.finish();
    assert_eq!(Btf::parse(&bytes).unwrap().member_offset("loop", "x"), None);
}
