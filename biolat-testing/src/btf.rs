//! Builds BTF byte by byte, following the kernel's documentation of the format.

/// Collects types and strings, and assembles them into BTF.
#[derive(Default)]
pub struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    /// Size of the kernel's strings, which precede those of a module; 0 for the kernel itself.
    base_strings: u32,
    /// Id of the last type. A module's types are numbered after the kernel's.
    count: u32,
}

/// A member of a struct or union.
#[derive(Clone, Copy)]
pub struct Member<'a> {
    pub name: &'a str,
    /// Id of its type.
    pub of: u32,
    /// Offset in bits.
    pub bits: u32,
    /// Width of a bit-field in bits; 0 for other members.
    pub width: u32,
}

impl Writer {
    pub fn new() -> Self {
        Self { strings: vec![0], ..Self::default() }
    }

    /// Returns a writer for a module of the kernel that this writer has described so far.
    pub fn module(&self) -> Self {
        Self { base_strings: self.strings.len() as u32, count: self.count, ..Self::default() }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.base_strings + self.strings.len() as u32;
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

    pub fn int(&mut self, name: &str) -> u32 {
        let id = self.head(name, 1, 0, 4);
        self.words(&[32]);
        id
    }

    pub fn typedef(&mut self, name: &str, of: u32) -> u32 {
        self.head(name, 8, 0, of)
    }

    pub fn pointer(&mut self, to: u32) -> u32 {
        self.head("", 2, 0, to)
    }

    pub fn constant(&mut self, of: u32) -> u32 {
        self.head("", 10, 0, of)
    }

    /// Adds a struct (`kind` 4) or union (5) of size 0. Each member is a name, a type and an offset in bytes.
    pub fn structure(&mut self, kind: u32, name: &str, members: &[(&str, u32, u32)]) -> u32 {
        let members: Vec<_> = members
            .iter()
            .map(|&(name, of, offset)| Member { name, of, bits: offset * 8, width: 0 })
            .collect();
        self.sized_structure(kind, name, 0, &members)
    }

    /// Adds a struct (`kind` 4) or union (5) of this size in bytes.
    pub fn sized_structure(&mut self, kind: u32, name: &str, size: u32, members: &[Member<'_>]) -> u32 {
        let has_bit_fields = members.iter().any(|member| member.width != 0);
        let id = self.head(name, u32::from(has_bit_fields) << 7 | kind, members.len(), size);
        for Member { name, of, bits, width } in members {
            let name = self.string(name);
            self.words(&[name, *of, width << 24 | bits]);
        }
        id
    }

    pub fn enumeration(&mut self, name: &str, values: &[(&str, u32)]) -> u32 {
        let id = self.head(name, 6, values.len(), 4);
        for (name, value) in values {
            let name = self.string(name);
            self.words(&[name, *value]);
        }
        id
    }

    pub fn prototype(&mut self, parameters: &[u32]) -> u32 {
        let id = self.head("", 13, parameters.len(), 0);
        for of in parameters {
            self.words(&[0, *of]);
        }
        id
    }

    pub fn finish(self) -> Vec<u8> {
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

/// Returns BTF like Linux 6.12's, with a tracepoint of 7.3, without the named member, enumerator or tracepoint.
pub fn modern(without: &str) -> Vec<u8> {
    modern_types(without).finish()
}

/// Returns the types of [`modern`].
pub fn modern_types(without: &str) -> Writer {
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
        ("__sector", int, 48),
        ("alloc_time_ns", int, 96),
        ("state", int, 128),
        ("mq_hctx", int, 16),
    ];
    let members: Vec<_> = all.into_iter().filter(|(name, ..)| *name != without).collect();
    writer.structure(4, "request", &members);
    let all = [("bi_issue", int, 64), ("bi_blkg", int, 72)];
    let members: Vec<_> = all.into_iter().filter(|(name, ..)| *name != without).collect();
    writer.structure(4, "bio", &members);
    writer.structure(4, "blkcg_gq", &[("blkcg", int, 40)]);
    let css = [("cgroup", int, 0), ("flags", int, 84), ("serial_nr", int, 88)];
    let css = writer.structure(4, "cgroup_subsys_state", &css);
    // In the kernel, its offset is 0, which would hide a resolver that ignores offsets.
    writer.structure(4, "blkcg", &[("css", css, 16)]);
    writer.structure(4, "cgroup", &[("kn", int, 256)]);
    writer.structure(4, "task_struct", &[("files", int, 2000)]);
    writer.structure(4, "files_struct", &[("fdt", int, 32)]);
    writer.structure(4, "fdtable", &[("fd", int, 8)]);
    writer.structure(4, "file", &[("f_inode", int, 40)]);
    writer.structure(4, "inode", &[("i_private", int, 560)]);
    writer.structure(
        4,
        "kernfs_node",
        &[("parent", int, 8), ("name", int, 16), ("id", int, 96), ("priv", int, 104)],
    );
    writer.structure(4, "blk_mq_hw_ctx", &[("tags", int, 344), ("sched_tags", int, 352), ("kobj", int, 408)]);
    let sbitmap = writer.structure(4, "sbitmap", &[("depth", int, 4)]);
    let bitmap = writer.structure(4, "sbitmap_queue", &[("sb", sbitmap, 8)]);
    let tags =
        [("nr_tags", int, 0), ("bitmap_tags", bitmap, 16), ("rqs", int, 144), ("static_rqs", int, 152)];
    writer.structure(4, "blk_mq_tags", &tags);
    writer.structure(4, "request_queue", &[("disk", int, 104)]);
    writer.structure(4, "gendisk", &[("part0", int, 64), ("diskseq", int, 800)]);
    writer.enumeration("", &[("__RQF_FLUSH_SEQ", 1), ("__RQF_IO_STAT", 8), ("BIO_ZONE_WRITE_PLUGGING", 11)]);
    writer.enumeration("", &[("CSS_NO_REF", 1), ("CSS_ONLINE", 2)]);
    if without != "BPF_MAP_TYPE_RINGBUF" {
        writer.enumeration("bpf_map_type", &[("BPF_MAP_TYPE_RINGBUF", 27)]);
    }
    writer.enumeration("bpf_func_id", &[("BPF_FUNC_user_ringbuf_drain", 209)]);
    writer.enumeration("", &[("BLK_MQ_REQ_NOWAIT", 1), ("BLK_MQ_REQ_RESERVED", 2)]);
    writer.enumeration(
        "req_op",
        &[("REQ_OP_READ", 0), ("REQ_OP_FLUSH", 2), ("REQ_OP_DRV_IN", 34), ("REQ_OP_LAST", 36)],
    );
    tracepoint(&mut writer, "block_rq_complete", &["void", "request", "blk_status_t", "int"]);
    let optional: [(&str, &[&str]); 2] = [
        ("block_rq_requeue", &["void", "request"]),
        ("block_rq_tag_wait", &["void", "", "", "bool", "unsigned int"]),
    ];
    for (name, parameters) in optional {
        // Another one takes its place, so the ids of all types stay the same.
        tracepoint(&mut writer, if name == without { "other" } else { name }, parameters);
    }
    writer
}

/// Adds a tracepoint. `parameters` are the names of its parameters' types.
pub fn tracepoint(writer: &mut Writer, name: &str, parameters: &[&str]) {
    let parameters: Vec<_> = parameters.iter().map(|name| writer.int(name)).collect();
    let prototype = writer.prototype(&parameters);
    let pointer = writer.pointer(prototype);
    writer.typedef(&format!("btf_trace_{name}"), pointer);
}

/// Returns BTF without block-layer types.
pub fn without_tracepoint() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.int("int");
    writer.finish()
}
