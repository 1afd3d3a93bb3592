//! Reads BTF, the kernel's description of its types: member offsets, enum values, and the arguments of tracepoints. The input is
//! bytes, not a file; type names come from the caller.
//!
//! Format: <https://docs.kernel.org/bpf/btf.html>

use std::{collections::BTreeMap, fmt};

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Maximum number of anonymous structs and unions that are searched for a member. Kernel structs have at most a few dozen.
const MAX_ANONYMOUS: usize = 1024;

/// Maximum number of typedefs and qualifiers of a type.
const MAX_QUALIFIERS: usize = 8;

const KIND_INT: u32 = 1;
const KIND_ARRAY: u32 = 3;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
const KIND_ENUM: u32 = 6;
const KIND_TYPEDEF: u32 = 8;
const KIND_VOLATILE: u32 = 9;
const KIND_CONST: u32 = 10;
const KIND_FUNC_PROTO: u32 = 13;
const KIND_VAR: u32 = 14;
const KIND_DATASEC: u32 = 15;
const KIND_DECL_TAG: u32 = 17;
const KIND_ENUM64: u32 = 19;

/// BTF that cannot be parsed.
#[derive(Debug, PartialEq, Eq)]
pub struct MalformedBtf(&'static str);

impl fmt::Display for MalformedBtf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed BTF: {}", self.0)
    }
}

impl std::error::Error for MalformedBtf {}

/// Parsed BTF.
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// Strings of the kernel, to which those of a module are appended; empty for the kernel itself.
    base_strings: &'a [u8],
    /// Number of types of the kernel, after which those of a module begin; 0 for the kernel itself.
    base_types: u32,
    /// Offsets of the records, by type id minus 1. Id 0 is void and has no record.
    records: Vec<u32>,
    /// Offsets of the records that are looked up by name. Most other records are functions and their prototypes.
    structs: Vec<u32>,
    enums: Vec<u32>,
    typedefs: Vec<u32>,
}

/// Offset of a name in the string section. Names are compared in place, because most are never needed.
#[derive(Clone, Copy)]
struct StringOffset(u32);

/// The record of one type.
#[derive(Clone, Copy)]
struct TypeRecord<'a> {
    name: StringOffset,
    kind: u32,
    /// Number of members, enumerators or parameters.
    count: usize,
    /// For a struct: member offsets also encode a bit-field size. For an enum: values are signed.
    flag: bool,
    /// A size, or the id of another type.
    size_or_type: u32,
    /// The data after the record's header.
    tail: &'a [u8],
}

impl<'a> Btf<'a> {
    /// Parses the bytes of `/sys/kernel/btf/vmlinux`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MalformedBtf> {
        Self::parse_after(bytes, &[], 0)
    }

    /// Parses the BTF of a module of this kernel, such as `/sys/kernel/btf/dm_mod`. Only the module's own types can be found in it.
    pub fn parse_module(&self, bytes: &'a [u8]) -> Result<Self, MalformedBtf> {
        Self::parse_after(bytes, self.strings, self.records.len() as u32)
    }

    fn parse_after(bytes: &'a [u8], base_strings: &'a [u8], base_types: u32) -> Result<Self, MalformedBtf> {
        let header = bytes.get(..HEADER).ok_or(MalformedBtf("no header"))?;
        if u16::from_le_bytes([header[0], header[1]]) != MAGIC {
            return Err(MalformedBtf("wrong magic number, or another byte order"));
        }
        let start = word(header, 4).ok_or(MalformedBtf("no header"))? as usize;
        let section = |at: usize| -> Option<&'a [u8]> {
            let offset = start.checked_add(word(header, at)? as usize)?;
            bytes.get(offset..offset.checked_add(word(header, at + 4)? as usize)?)
        };
        let types = section(8).ok_or(MalformedBtf("types beyond the end"))?;
        let strings = section(16).ok_or(MalformedBtf("strings beyond the end"))?;

        let (records, structs, enums, typedefs) = Default::default();
        let mut btf = Self { types, strings, base_strings, base_types, records, structs, enums, typedefs };
        let mut at = 0;
        while at < types.len() {
            let record = btf.record_at(at).ok_or(MalformedBtf("a type beyond the end"))?;
            btf.records.push(at as u32);
            match record.kind {
                KIND_STRUCT => btf.structs.push(at as u32),
                KIND_ENUM | KIND_ENUM64 => btf.enums.push(at as u32),
                KIND_TYPEDEF => btf.typedefs.push(at as u32),
                _ => {}
            }
            at += 12 + record.tail.len();
        }
        Ok(btf)
    }

    /// Returns the byte offset of a member in a struct, including the members of anonymous structs and unions within it.
    #[must_use]
    pub fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        self.nested_offset(structure, &[member])
    }

    /// Returns the byte offset of a member of a member, such as `completion.wait.task_list`.
    #[must_use]
    pub fn nested_offset(&self, structure: &str, members: &[&str]) -> Option<u32> {
        // Several structs may have the same name.
        self.named(&self.structs, structure).find_map(|record| {
            let (mut record, mut bits) = (Some(record), 0_u32);
            for member in members {
                let mut budget = MAX_ANONYMOUS;
                let (offset, type_id) = self.member_bits(record?, member, &mut budget)?;
                bits = bits.checked_add(offset)?;
                record = self.unqualified(type_id);
            }
            bits.is_multiple_of(8).then_some(bits / 8)
        })
    }

    /// Returns the offset of a bit field of one bit: the byte, and the bit's mask in it.
    #[must_use]
    pub fn flag(&self, structure: &str, member: &str) -> Option<(u32, u32)> {
        self.named(&self.structs, structure).find_map(|record| {
            let mut budget = MAX_ANONYMOUS;
            let (bits, _) = self.member_bits(record, member, &mut budget)?;
            Some((bits / 8, 1 << (bits % 8)))
        })
    }

    /// Returns the size of a struct in bytes.
    #[must_use]
    pub fn size(&self, structure: &str) -> Option<u32> {
        Some(self.named(&self.structs, structure).next()?.size_or_type)
    }

    /// The type behind typedefs and qualifiers.
    fn unqualified(&self, mut type_id: u32) -> Option<TypeRecord<'a>> {
        for _ in 0..MAX_QUALIFIERS {
            let record = self.record(type_id)?;
            if !matches!(record.kind, KIND_TYPEDEF | KIND_VOLATILE | KIND_CONST) {
                return Some(record);
            }
            type_id = record.size_or_type;
        }
        None
    }

    /// Returns the names and values of the enums with this name.
    pub fn enumerators<'b>(&'b self, name: &'b str) -> impl Iterator<Item = (&'a str, u64)> + 'b {
        self.named(&self.enums, name)
            .flat_map(|record| self.values(record))
            .filter_map(|(name, value)| Some((self.string(name)?, value)))
    }

    /// Returns the value of an enumerator in any enum, named or anonymous.
    #[must_use]
    pub fn enumerator(&self, name: &str) -> Option<u64> {
        self.all(&self.enums)
            .flat_map(|record| self.values(record))
            .find_map(|(found, value)| self.is(found, name).then_some(value))
    }

    /// Returns the name of a parameter's type in a typedef of a function pointer: for `typedef void (*t)(void *, blk_status_t)`,
    /// `t` and 1 give `blk_status_t`. `None` if there is no such typedef; an empty name if it has no such parameter.
    #[must_use]
    pub fn parameter_type(&self, typedef: &str, index: usize) -> Option<&'a str> {
        let prototype = self.prototype(typedef)?;
        if index >= prototype.count {
            return Some("");
        }
        let id = word(prototype.tail, index * 8 + 4)?;
        self.record(id).map_or(Some(""), |parameter| self.string(parameter.name))
    }

    /// Returns the number of parameters in a typedef of a function pointer. `None` if there is no such typedef.
    #[must_use]
    pub fn parameter_count(&self, typedef: &str) -> Option<usize> {
        Some(self.prototype(typedef)?.count)
    }

    /// Returns the type id of a typedef.
    #[must_use]
    pub fn typedef_id(&self, name: &str) -> Option<u32> {
        let at = self
            .typedefs
            .iter()
            .find(|&&at| self.record_at(at as usize).is_some_and(|record| self.is(record.name, name)))?;
        Some(self.base_types + self.records.binary_search(at).ok()? as u32 + 1)
    }

    fn prototype(&self, typedef: &str) -> Option<TypeRecord<'a>> {
        let pointer = self.record(self.named(&self.typedefs, typedef).next()?.size_or_type)?;
        self.record(pointer.size_or_type).filter(|prototype| prototype.kind == KIND_FUNC_PROTO)
    }

    fn named<'b>(&'b self, records: &'b [u32], name: &'b str) -> impl Iterator<Item = TypeRecord<'a>> + 'b {
        self.all(records).filter(move |record| self.is(record.name, name))
    }

    fn all<'b>(&'b self, records: &'b [u32]) -> impl Iterator<Item = TypeRecord<'a>> + 'b {
        records.iter().filter_map(|&at| self.record_at(at as usize))
    }

    fn record(&self, id: u32) -> Option<TypeRecord<'a>> {
        self.record_at(*self.records.get(id.checked_sub(self.base_types + 1)? as usize)? as usize)
    }

    fn record_at(&self, at: usize) -> Option<TypeRecord<'a>> {
        let info = word(self.types, at + 4)?;
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let tail = match kind {
            KIND_INT | KIND_VAR | KIND_DECL_TAG => 4,
            KIND_ARRAY => 12,
            KIND_STRUCT | KIND_UNION | KIND_DATASEC | KIND_ENUM64 => count * 12,
            KIND_ENUM | KIND_FUNC_PROTO => count * 8,
            _ => 0,
        };
        Some(TypeRecord {
            name: StringOffset(word(self.types, at)?),
            kind,
            count,
            flag: info >> 31 != 0,
            size_or_type: word(self.types, at + 8)?,
            tail: self.types.get(at + 12..at + 12 + tail)?,
        })
    }

    /// Returns the offset of a member in bits, and the id of its type. `budget` is the number of anonymous structs and unions that
    /// may still be searched. Malformed ones may contain themselves.
    fn member_bits(&self, record: TypeRecord<'a>, member: &str, budget: &mut usize) -> Option<(u32, u32)> {
        *budget = budget.checked_sub(1)?;
        record.tail.as_chunks::<12>().0.iter().find_map(|entry| {
            let name = StringOffset(word(entry, 0)?);
            let offset = word(entry, 8)?;
            let bits = if record.flag { offset & 0x00ff_ffff } else { offset };
            if self.is(name, member) {
                return Some((bits, word(entry, 4)?));
            }
            if !self.is(name, "") {
                return None;
            }
            let inner = self.record(word(entry, 4)?)?;
            if !matches!(inner.kind, KIND_STRUCT | KIND_UNION) {
                return None;
            }
            let (offset, type_id) = self.member_bits(inner, member, budget)?;
            Some((bits.checked_add(offset)?, type_id))
        })
    }

    fn values(&self, record: TypeRecord<'a>) -> impl Iterator<Item = (StringOffset, u64)> + use<'a> {
        let size = if record.kind == KIND_ENUM64 { 12 } else { 8 };
        record.tail.chunks_exact(size).filter_map(move |entry| {
            let high = if size == 12 { u64::from(word(entry, 8)?) << 32 } else { 0 };
            Some((StringOffset(word(entry, 0)?), high | u64::from(word(entry, 4)?)))
        })
    }

    fn is(&self, name: StringOffset, expected: &str) -> bool {
        let rest = self.strings_from(name).and_then(|rest| rest.strip_prefix(expected.as_bytes()));
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The strings from this one on.
    fn strings_from(&self, name: StringOffset) -> Option<&'a [u8]> {
        let offset = name.0 as usize;
        match offset.checked_sub(self.base_strings.len()) {
            None => self.base_strings.get(offset..),
            Some(offset) => self.strings.get(offset..),
        }
    }

    fn string(&self, name: StringOffset) -> Option<&'a str> {
        let rest = self.strings_from(name)?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        std::str::from_utf8(&rest[..end]).ok()
    }
}

/// The name of the typedef of a tracepoint's function.
pub(crate) fn tracepoint(name: &str) -> String {
    format!("btf_trace_{name}")
}

/// Encodes BTF with only these typedefs, by id. They refer to void, and all other ids are void.
pub(crate) fn encode_typedefs(typedefs: &BTreeMap<u32, String>) -> Vec<u8> {
    const RECORD: usize = 12;
    let (mut types, mut strings) = (Vec::new(), vec![0]);
    for (&id, name) in typedefs {
        types.resize((id as usize - 1) * RECORD, 0);
        let record = [strings.len() as u32, KIND_TYPEDEF << 24, 0];
        types.extend(record.iter().flat_map(|word| word.to_le_bytes()));
        strings.extend(name.bytes().chain([0]));
    }
    let (types_len, strings_len) = (types.len() as u32, strings.len() as u32);
    let header = [u32::from(MAGIC) | 1 << 16, HEADER as u32, 0, types_len, types_len, strings_len];
    header.iter().flat_map(|word| word.to_le_bytes()).chain(types).chain(strings).collect()
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
