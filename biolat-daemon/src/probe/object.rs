//! The probe's object file, and its relocation to the running kernel's layout.

use std::{borrow::Cow, path::Path};

use anyhow::{Context as _, Result};
use aya::include_bytes_aligned;
use biolat_common::{kernel::Layout, series::Series, size::Counters, workload::PLACES_PLACEHOLDER};
use object::{Object as _, ObjectSection as _, SectionKind};

/// The compiled probe. `cargo xtask ebpf` builds it and writes its manifest.
static OBJECT: &[u8] = include_bytes_aligned!("../../probe/biolat.bpf.o");

/// The shipped probe, or one that a developer chose, relocated to this layout. So many places have the tables of workloads.
pub(super) fn of_kernel(layout: Layout, places: u32) -> Result<Vec<u8>> {
    let object: Cow<'_, [u8]> = match std::env::var_os("BIOLAT_PROBE_OBJECT") {
        None => OBJECT.into(),
        Some(path) => {
            let path = Path::new(&path);
            log::warn!("loading the probe from {}", path.display());
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?.into()
        }
    };
    let relocated = relocate(&object, layout).context("the probe's object does not match this daemon")?;
    let relocated = with_array_length(relocated, PLACES_PLACEHOLDER as u32, places)
        .context("the probe's object has no table of workloads for the understudy")?;
    let relocated = if layout.mark_lines == 0 { without_atomics(relocated)? } else { relocated };
    if layout.sizes != 0 { Ok(relocated) } else { without_sizes(relocated) }
}

/// Makes the values of the maps of series as short as a series without counters by size. aya takes their size from the
/// object's BTF, in which they are an array of 64-bit words.
///
/// <https://docs.kernel.org/bpf/btf.html#btf-kind-array>
fn without_sizes(object: Vec<u8>) -> Result<Vec<u8>> {
    const WORDS: [usize; 2] = [size_of::<Counters>() / 8, size_of::<Series>() / 8];
    with_array_length(object, WORDS[0] as u32, WORDS[1] as u32)
        .context("the probe's object has no map of series")
}

/// Changes the length of all arrays of this length.
fn with_array_length(mut object: Vec<u8>, from: u32, to: u32) -> Result<Vec<u8>> {
    const ARRAY: [u32; 2] = [3 << 24, 0];
    let (start, size) = object::File::parse(&*object)?
        .section_by_name(".BTF")
        .and_then(|section| section.file_range())
        .context("the probe's object has no BTF")?;
    let types = object.get_mut(start as usize..(start + size) as usize).context("its BTF is truncated")?;
    // The kind, no size, the types of an element and of the index, the number of elements.
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
    (!found.is_empty()).then_some(object).context("its BTF has no such array")
}

/// Kernels without an understudy may not know the instruction that claims a line of the marks, and look at code that never runs, too:
/// puts one in its place that does nothing.
fn without_atomics(mut object: Vec<u8>) -> Result<Vec<u8>> {
    /// `BPF_STX | BPF_ATOMIC | BPF_DW`, and the number of `BPF_CMPXCHG`.
    const COMPARE_AND_EXCHANGE: (u8, [u8; 4]) = (0xdb, 0xf1_u32.to_le_bytes());
    /// `r0 = r0`
    const NOTHING: [u8; 8] = [0xbf, 0, 0, 0, 0, 0, 0, 0];
    let parsed = object::File::parse(&*object)?;
    let code: Vec<_> = parsed
        .sections()
        .filter(|section| section.kind() == SectionKind::Text)
        .filter_map(|section| section.file_range())
        .collect();
    for (start, size) in code {
        let code = object.get_mut(start as usize..(start + size) as usize);
        for instruction in code.context("a code section is truncated")?.as_chunks_mut::<8>().0 {
            if (instruction[0], [instruction[4], instruction[5], instruction[6], instruction[7]])
                == COMPARE_AND_EXCHANGE
            {
                *instruction = NOTHING;
            }
        }
    }
    Ok(object)
}

/// Writes the layout into the code of an object.
pub fn relocate(object: &[u8], layout: Layout) -> Result<Vec<u8>> {
    let mut relocated = object.to_vec();
    let mut placeholders = 0;
    for section in
        object::File::parse(object)?.sections().filter(|section| section.kind() == SectionKind::Text)
    {
        let (start, size) = section.file_range().context("a code section has no bytes")?;
        let code = relocated
            .get_mut(start as usize..(start + size) as usize)
            .context("a code section is truncated")?;
        placeholders += layout.relocate(code).context("unknown layout field, or an offset beyond 32767")?;
    }
    (placeholders > 0).then_some(relocated).context("its code has no layout placeholders")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use biolat_common::kernel::Layout;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SectionKind};

    use super::{OBJECT, relocate, without_atomics};

    /// The instructions of the sections whose name matches.
    fn instructions(section_matches: impl Fn(&str) -> bool) -> Vec<[u8; 8]> {
        let object = object::File::parse(OBJECT).unwrap();
        let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
        let matching = sections.filter(|section| section_matches(section.name().unwrap()));
        let code = matching.flat_map(|section| section.data().unwrap().to_vec()).collect::<Vec<_>>();
        code.as_chunks().0.to_vec()
    }

    /// The instructions of a program.
    fn program(name: &str) -> Vec<[u8; 8]> {
        let object = object::File::parse(OBJECT).unwrap();
        let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name)).unwrap();
        let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
        let code = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
        code.as_chunks().0.to_vec()
    }

    /// The common case is the main program; the rare case is a subprogram.
    #[test]
    fn the_common_case_calls_the_clock_and_looks_up() {
        const CALL: u8 = 0x85;
        let mut calls: BTreeMap<(u8, i32), usize> = BTreeMap::new();
        for code in program("block_rq_complete").into_iter().filter(|code| code[0] == CALL) {
            let [_, registers, _, _, n0, n1, n2, n3] = code;
            let helper = if registers >> 4 == 0 { i32::from_le_bytes([n0, n1, n2, n3]) } else { 0 };
            *calls.entry((registers >> 4, helper)).or_default() += 1;
        }
        // bpf_map_lookup_elem: one for the table, one for the workload, one for a preallocated slot, two for a slot in a chunk;
        // two for a workload that has no entry yet; and one for a completion that is left to the understudy. Then bpf_ktime_get_ns,
        // and the calls of the rare case, of its record, of a long wait before the allocation, of that entry, and of the mark.
        assert_eq!(calls, BTreeMap::from([((0, 1), 8), ((0, 5), 1), ((1, 0), 5)]));
    }

    /// The first program claims a line of the marks at the first completion of a frame.
    #[test]
    fn nothing_else_is_atomic() {
        const ATOMIC: [u8; 2] = [0xc3, 0xdb];
        let atomic = |code: Vec<[u8; 8]>| {
            // The second half of a wide load is not an instruction.
            let mut wide = false;
            let instructions = code.into_iter().filter(|code| {
                let is_instruction = !wide;
                wide = !wide && code[0] == 0x18;
                is_instruction
            });
            instructions.filter(|code| ATOMIC.contains(&code[0])).count()
        };
        let all = instructions(|_| true);
        assert!(all.len() > 500);
        assert!(atomic(all.clone()) > 0);
        assert_eq!(atomic(all), atomic(program("mark_completion")));
    }

    #[test]
    fn old_kernels_get_no_atomic_instruction() {
        let object = without_atomics(OBJECT.to_vec()).unwrap();
        assert_eq!(object.len(), OBJECT.len());
        let is_atomic = |code: &&[u8]| code[0] == 0xdb && code[4] == 0xf1;
        assert_eq!(object.chunks_exact(8).filter(is_atomic).count(), 0);
        assert!(OBJECT.chunks_exact(8).filter(is_atomic).count() > 0);
    }

    #[test]
    fn the_shipped_probe_is_relocated_once() {
        let object = relocate(OBJECT, Layout::default()).unwrap();
        assert_eq!(object.len(), OBJECT.len());
        let again = relocate(&object, Layout::default()).unwrap_err();
        assert_eq!(again.to_string(), "its code has no layout placeholders");
    }

    #[test]
    fn other_bytes_are_refused() {
        assert!(relocate(b"no object", Layout::default()).is_err());
    }
}
