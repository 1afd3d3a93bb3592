//! The probe's object file, and its adaptation to the running kernel and the probe's options.

use std::{borrow::Cow, ops::Range, path::Path};

use anyhow::{Context as _, Result};
use aya::include_bytes_aligned;
use biolat_common::{
    constants::{
        COUNTER_FLAGS, Constants, ENTRY_WORDS_PLACEHOLDER, PLACES_PLACEHOLDER, ProbeOptions,
        SERIES_WORDS_PLACEHOLDER,
    },
    workload::Entry,
};
use object::{Object as _, ObjectSection as _, SectionKind};

use super::{abilities::Ability, kernel::Kernel};

/// The compiled probe, which `cargo xtask ebpf` builds together with its manifest.
static OBJECT: &[u8] = include_bytes_aligned!("../object/biolat.bpf.o");

/// Returns the shipped probe, or one chosen by a developer, adapted to this kernel and these options. With `by_node`, the memory
/// of its counters is allocated by NUMA node.
pub(super) fn adapted(kernel: &Kernel, options: ProbeOptions, by_node: bool) -> Result<Vec<u8>> {
    let names = kernel.names.unwrap_or_default();
    let constants = Constants { kernel: kernel.layout, names, options, ..Constants::default() };
    let object: Cow<'_, [u8]> = match std::env::var_os("BIOLAT_PROBE_OBJECT") {
        None => OBJECT.into(),
        Some(path) => {
            let path = Path::new(&path);
            log::warn!("loading the probe from {}", path.display());
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?.into()
        }
    };
    let mut relocated =
        relocate(&object, constants).context("the probe's object does not match this daemon")?;
    if !kernel.has(Ability::RecursionGuard) {
        without_compare_exchange(&mut relocated)?;
    }
    let words = |row_bytes: u32| options.rows * row_bytes / size_of::<u64>() as u32;
    let lengths = ArrayLengths {
        series_words: words(options.series_bytes),
        entry_words: words(size_of::<Entry>() as u32),
        places: options.tables().places(),
    };
    with_lengths(relocated, by_node, lengths)
}

/// The shapes of the arrays of counters.
struct ArrayLengths {
    series_words: u32,
    entry_words: u32,
    places: u32,
}

/// Changes the arrays of counters. aya takes their flags and shapes from the object's BTF.
fn with_lengths(object: Vec<u8>, by_node: bool, lengths: ArrayLengths) -> Result<Vec<u8>> {
    let flags = if by_node { COUNTER_FLAGS } else { COUNTER_FLAGS & !NUMA_NODE };
    [
        // First, because another array may be given this length.
        (COUNTER_FLAGS, flags as u32),
        (SERIES_WORDS_PLACEHOLDER, lengths.series_words),
        (ENTRY_WORDS_PLACEHOLDER, lengths.entry_words),
        (PLACES_PLACEHOLDER, lengths.places),
    ]
    .into_iter()
    .try_fold(object, |object, (from, to)| with_array_length(object, from as u32, to))
}

/// The flag of maps in the memory of a NUMA node.
const NUMA_NODE: usize = 1 << 2;

/// Changes the length of all arrays that have the length `from`.
///
/// <https://docs.kernel.org/bpf/btf.html#btf-kind-array>
fn with_array_length(mut object: Vec<u8>, from: u32, to: u32) -> Result<Vec<u8>> {
    const ARRAY: [u32; 2] = [3 << 24, 0];
    let (start, size) = object::File::parse(&*object)?
        .section_by_name(".BTF")
        .and_then(|section| section.file_range())
        .context("the probe's object has no BTF")?;
    let types = object.get_mut(start as usize..(start + size) as usize).context("its BTF is truncated")?;
    // An array type after its name: kind, size (zero), element type, index type, number of elements.
    let words = |at: usize| {
        types.get(at..at + 20).map(|bytes| {
            bytes.as_chunks::<4>().0.iter().map(|&word| u32::from_le_bytes(word)).collect::<Vec<_>>()
        })
    };
    let found: Vec<_> = (0..types.len())
        .step_by(4)
        .filter(|&at| words(at).is_some_and(|words| words[..2] == ARRAY && words[4] == from))
        .collect();
    for &at in &found {
        types[at + 16..at + 20].copy_from_slice(&to.to_le_bytes());
    }
    (!found.is_empty()).then_some(object).with_context(|| format!("its BTF has no array of length {from}"))
}

/// `r0 = cmpxchg_64`: opcode and immediate.
///
/// <https://www.kernel.org/doc/html/v6.12/bpf/standardization/instruction-set.html#atomic-operations>
const COMPARE_EXCHANGE: (u8, i32) = (0xdb, 0xf1);

/// Replaces each compare-and-exchange with a jump to the next instruction. The probe works without it.
fn without_compare_exchange(object: &mut [u8]) -> Result<()> {
    const NEXT: [u8; 8] = [0x05, 0, 0, 0, 0, 0, 0, 0];
    for range in code_sections(object)? {
        let code = object.get_mut(range).context("a code section is truncated")?;
        for instruction in code.as_chunks_mut::<8>().0 {
            let [code, _, _, _, immediate @ ..] = *instruction;
            if (code, i32::from_le_bytes(immediate)) == COMPARE_EXCHANGE {
                *instruction = NEXT;
            }
        }
    }
    Ok(())
}

/// Returns the file ranges of the code sections of an object.
fn code_sections(object: &[u8]) -> Result<Vec<Range<usize>>> {
    let object = object::File::parse(object)?;
    let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
    let range = |(start, size): (u64, u64)| start as usize..(start + size) as usize;
    sections.map(|section| section.file_range().map(range).context("a code section has no bytes")).collect()
}

/// Writes the constants into the code of an object.
pub fn relocate(object: &[u8], constants: Constants) -> Result<Vec<u8>> {
    let mut relocated = object.to_vec();
    let mut placeholders = 0;
    for range in code_sections(object)? {
        let code = relocated.get_mut(range).context("a code section is truncated")?;
        placeholders += constants.relocate(code).context("an unknown constant, or an offset beyond 32767")?;
    }
    (placeholders > 0).then_some(relocated).context("its code has no placeholders for constants")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use biolat_common::constants::Constants;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

    use super::{
        ArrayLengths, COMPARE_EXCHANGE, COUNTER_FLAGS, NUMA_NODE, OBJECT, relocate, with_array_length,
        with_lengths, without_compare_exchange,
    };

    /// The instructions of the sections whose names match.
    fn instructions(section_matches: impl Fn(&str) -> bool) -> Vec<[u8; 8]> {
        instructions_of(OBJECT, section_matches)
    }

    fn instructions_of(object: &[u8], section_matches: impl Fn(&str) -> bool) -> Vec<[u8; 8]> {
        let object = object::File::parse(object).unwrap();
        let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
        let matching = sections.filter(|section| section_matches(section.name().unwrap()));
        let code = matching.flat_map(|section| section.data().unwrap().to_vec()).collect::<Vec<_>>();
        code.as_chunks().0.to_vec()
    }

    /// The instructions of one program.
    fn program(name: &str) -> Vec<[u8; 8]> {
        let object = object::File::parse(OBJECT).unwrap();
        let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
        let code = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
        code.as_chunks().0.to_vec()
    }

    /// The common case is the main program, the rare case a subprogram.
    #[test]
    fn common_case_calls_only_clock_cpu_and_lookups() {
        const CALL: u8 = 0x85;
        let mut calls: BTreeMap<(u8, i32), usize> = BTreeMap::new();
        for code in program("block_rq_complete").into_iter().filter(|code| code[0] == CALL) {
            let [_, registers, _, _, n0, n1, n2, n3] = code;
            let helper = if registers >> 4 == 0 { i32::from_le_bytes([n0, n1, n2, n3]) } else { 0 };
            *calls.entry((registers >> 4, helper)).or_default() += 1;
        }
        // bpf_map_lookup_elem: one for the table, one for the place of a CPU outside the first bank, one for the counters in the
        // first bank and two for those elsewhere (of the series, of the workload, and of the workload again if its entry was not
        // in its first place or is new), one for a cgroup, and one for a completion that is left to the understudy. Then
        // bpf_ktime_get_ns, bpf_get_smp_processor_id, and calls to the subprograms for the rare case, a slow record, a long
        // admission, a new workload entry, and the mark.
        assert_eq!(calls, BTreeMap::from([((0, 1), 13), ((0, 5), 1), ((0, 8), 1), ((1, 0), 5)]));
    }

    /// The atomic instructions. Skips the second halves of wide loads, which are not instructions.
    fn atomic(code: Vec<[u8; 8]>) -> Vec<(u8, i32)> {
        const ATOMIC: [u8; 2] = [0xc3, 0xdb];
        let mut wide = false;
        let atomic = code.into_iter().filter(|code| {
            let is_atomic = !wide && ATOMIC.contains(&code[0]);
            wide = !wide && code[0] == 0x18;
            is_atomic
        });
        atomic.map(|[code, _, _, _, n @ ..]| (code, i32::from_le_bytes(n))).collect()
    }

    /// The only atomic instructions are in three places: the rare case of both programs raises `PARTS_UNTIL` when a part of a
    /// request completes, `mark_completion` claims a line for a frame at its first completion, and waits for a tag are counted.
    #[test]
    fn only_rare_events_are_atomic() {
        const ADD: (u8, i32) = (0xdb, 0);
        let all = instructions(|_| true);
        assert!(all.len() > 500);
        let marks = atomic(program("mark_completion"));
        assert!(!marks.is_empty() && marks.iter().all(|found| *found == COMPARE_EXCHANGE));
        assert_eq!(atomic(program("block_rq_tag_wait")), [ADD]);
        let parts = [COMPARE_EXCHANGE, ADD, COMPARE_EXCHANGE, ADD];
        let all = atomic(all);
        assert_eq!(all.len(), marks.len() + parts.len() + 1, "{all:?}");
        assert_eq!(all.iter().filter(|found| **found == ADD).count(), 3);
        let mut object = OBJECT.to_vec();
        without_compare_exchange(&mut object).unwrap();
        assert_eq!(atomic(instructions_of(&object, |_| true)), [ADD; 3]);
    }

    #[test]
    fn relocates_shipped_probe_once() {
        let object = relocate(OBJECT, Constants::default()).unwrap();
        assert_eq!(object.len(), OBJECT.len());
        let again = relocate(&object, Constants::default()).unwrap_err();
        assert_eq!(again.to_string(), "its code has no placeholders for constants");
    }

    /// Arrays are found by their length. A length that is given to one must not be taken for another's.
    #[test]
    fn lengths_of_arrays_may_be_like_flags() {
        let flags = COUNTER_FLAGS as u32;
        let lengths = ArrayLengths { series_words: flags, entry_words: 2, places: 3 };
        let object = with_lengths(OBJECT.to_vec(), false, lengths).unwrap();
        assert!(with_array_length(object.clone(), flags, 0).is_ok(), "the series");
        assert!(with_array_length(object, flags & !(NUMA_NODE as u32), 0).is_ok(), "the flags");
    }

    /// The kernel truncates longer names, and a probe that is taken over finds its maps by name.
    #[test]
    fn kernel_keeps_map_names() {
        const LONGEST: usize = 15;
        let object = object::File::parse(OBJECT).unwrap();
        let maps = object.section_by_name(".maps").unwrap().index();
        let names = object.symbols().filter(|symbol| symbol.section_index() == Some(maps));
        let names: Vec<_> =
            names.map(|symbol| symbol.name().unwrap()).filter(|name| !name.is_empty()).collect();
        assert!(names.contains(&"FUNCTIONS"));
        assert!(names.iter().all(|name| name.len() <= LONGEST), "{names:?}");
    }

    #[test]
    fn rejects_other_files() {
        assert!(relocate(b"no object", Constants::default()).is_err());
    }
}
