//! Tests with BTF built byte by byte, as the format's documentation specifies it.

use std::collections::BTreeMap;

use biolat_testing::btf::Writer;

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
