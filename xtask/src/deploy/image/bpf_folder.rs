//! Provides a directory in a BPF file system where a container keeps its probe.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::process::run;

/// A directory in a BPF file system, which is unmounted on drop, releasing the kept probe.
pub(super) struct BpfFolder {
    mounted: PathBuf,
    folder: PathBuf,
}

impl BpfFolder {
    pub(super) fn mount(folder: &Path) -> Result<Self> {
        let mounted = folder.join("bpf");
        fs::create_dir(&mounted)?;
        run(Command::new("mount").args(["-t", "bpf", "bpf"]).arg(&mounted))?;
        let bpf = Self { folder: mounted.join("biolat"), mounted };
        fs::create_dir(&bpf.folder)?;
        Ok(bpf)
    }

    pub(super) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for BpfFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mounted).status();
    }
}
