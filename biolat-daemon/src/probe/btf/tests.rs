//! BTF built byte by byte, as the format's documentation specifies.

use super::{Btf, MalformedBtf};

/// Builds BTF.
#[derive(Default)]
pub(crate) struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend_from_slice(text.as_bytes());
        self.strings.push(0);
        at
    }

    fn head(&mut self, name: &str, kind: u32, count: usize, size_or_type: u32) -> u32 {
        let name = self.string(name);
        for word in [name, kind << 24 | count as u32, size_or_type] {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend_from_slice(&word.to_le_bytes());
        }
    }

    pub(crate) fn int(&mut self, name: &str) -> u32 {
        let id = self.head(name, 1, 0, 4);
        self.words(&[32]);
        id
    }

    pub(crate) fn typedef(&mut self, name: &str, of: u32) -> u32 {
        self.head(name, 8, 0, of)
    }

    pub(crate) fn pointer(&mut self, to: u32) -> u32 {
        self.head("", 2, 0, to)
    }

    /// A struct (4) or union (5); members are name, type and offset in bytes.
    pub(crate) fn structure(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let id = self.head(name, kind, members.len(), 0);
        for (name, of, offset) in members {
            let name = self.string(name);
            self.words(&[name, *of, offset * 8]);
        }
        id
    }

    pub(crate) fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) -> u32 {
        let id = self.head(name, 6, values.len(), 4);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value]);
        }
        id
    }

    pub(crate) fn prototype(&mut self, parameters: &[u32]) -> u32 {
        let id = self.head("", 13, parameters.len(), 0);
        for of in parameters {
            self.words(&[0, *of]);
        }
        id
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        let mut bytes = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&self.types);
        bytes.extend_from_slice(&self.strings);
        bytes
    }
}

#[test]
fn members_values_and_parameters() {
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
    writer.typedef("btf_trace_x", pointer);
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
    assert_eq!(btf.parameter_count("btf_trace_x"), Some(3));
    assert_eq!(btf.parameter_count("btf_trace_y"), None);
    assert_eq!(btf.parameter_count("blk_status_t"), None);
}

#[test]
fn garbage_is_refused() {
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
fn a_struct_inside_itself_ends() {
    let mut writer = Writer::new();
    // Twice: a search that is limited only in depth takes time exponential in it.
    writer.structure(4, "loop", &[("", 1, 8), ("", 1, 16)]);
    let bytes = writer.finish();
    assert_eq!(Btf::parse(&bytes).unwrap().member_offset("loop", "x"), None);
}
