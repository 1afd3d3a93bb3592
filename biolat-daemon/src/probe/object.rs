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
    use biolat_common::kernel::Layout;

    use super::{OBJECT, told};

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
