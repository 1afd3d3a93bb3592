//! The probe's object file: which one is loaded, and what its code is told of the running kernel.

use std::{borrow::Cow, path::Path};

use anyhow::{Context as _, Result};
use aya::include_bytes_aligned;
use biolat_common::kernel::Layout;
use object::{Object as _, ObjectSection as _, SectionKind};

/// The compiled probe. `cargo xtask ebpf` makes it, and its manifest beside it.
static OBJECT: &[u8] = include_bytes_aligned!("../../probe/biolat.bpf.o");

/// The shipped probe, or one that a developer named, for a kernel of this layout.
pub(super) fn of_kernel(layout: Layout) -> Result<Vec<u8>> {
    let object: Cow<'_, [u8]> = match std::env::var_os("BIOLAT_PROBE_OBJECT") {
        None => OBJECT.into(),
        Some(path) => {
            let path = Path::new(&path);
            log::warn!("loading the probe from {}", path.display());
            std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?.into()
        }
    };
    told(&object, layout).context("the probe's object is not of this daemon's making")
}

/// An object whose code has been told of the kernel.
pub fn told(object: &[u8], layout: Layout) -> Result<Vec<u8>> {
    let mut told = object.to_vec();
    let mut marks = 0;
    for section in
        object::File::parse(object)?.sections().filter(|section| section.kind() == SectionKind::Text)
    {
        let (start, size) = section.file_range().context("it has code without bytes")?;
        let code = told.get_mut(start as usize..(start + size) as usize).context("its code ends early")?;
        marks += layout.fill(code).context("it wants to know what no kernel tells")?;
    }
    (marks > 0).then_some(told).context("it asks nothing of the kernel")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use biolat_common::kernel::Layout;
    use object::{Object as _, ObjectSection as _, SectionKind};

    use super::{OBJECT, told};

    /// Opcodes of the instructions of those sections whose name matches.
    fn instructions(section_matches: impl Fn(&str) -> bool) -> Vec<[u8; 8]> {
        let object = object::File::parse(OBJECT).unwrap();
        let sections = object.sections().filter(|section| section.kind() == SectionKind::Text);
        let matching = sections.filter(|section| section_matches(section.name().unwrap()));
        let code = matching.flat_map(|section| section.data().unwrap().to_vec()).collect::<Vec<_>>();
        code.as_chunks().0.to_vec()
    }

    /// The common case is all of the program but what it calls.
    #[test]
    fn the_common_case_calls_the_clock_and_looks_up() {
        const CALL: u8 = 0x85;
        let mut calls: BTreeMap<(u8, i32), usize> = BTreeMap::new();
        for code in instructions(|name| name.starts_with("tp_btf")).into_iter().filter(|code| code[0] == CALL)
        {
            let [_, registers, _, _, n0, n1, n2, n3] = code;
            let helper = if registers >> 4 == 0 { i32::from_le_bytes([n0, n1, n2, n3]) } else { 0 };
            *calls.entry((registers >> 4, helper)).or_default() += 1;
        }
        // bpf_map_lookup_elem of the table, of a series, and of one beyond those foreseen, which takes two; bpf_ktime_get_ns;
        // the rare case.
        assert_eq!(calls, BTreeMap::from([((0, 1), 4), ((0, 5), 1), ((1, 0), 1)]));
    }

    #[test]
    fn nothing_is_atomic() {
        const ATOMIC: [u8; 2] = [0xc3, 0xdb];
        let all = instructions(|_| true);
        assert!(all.len() > 500);
        // The second half of a wide load is no instruction.
        let mut wide = false;
        for code in all {
            assert!(wide || !ATOMIC.contains(&code[0]), "{code:x?}");
            wide = !wide && code[0] == 0x18;
        }
    }

    #[test]
    fn the_shipped_probe_is_told_once() {
        let object = told(OBJECT, Layout::default()).unwrap();
        assert_eq!(object.len(), OBJECT.len());
        let again = told(&object, Layout::default()).unwrap_err();
        assert_eq!(again.to_string(), "it asks nothing of the kernel");
    }

    #[test]
    fn what_is_no_object_is_refused() {
        assert!(told(b"no object", Layout::default()).is_err());
    }
}
