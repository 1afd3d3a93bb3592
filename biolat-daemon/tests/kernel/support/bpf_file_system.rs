//! A temporary BPF file system in which daemons pin their probes.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use super::{Folder, run};

/// A mounted BPF file system, unmounted on drop.
pub(crate) struct BpfFileSystem(Folder);

impl BpfFileSystem {
    pub(crate) fn mount(name: &str) -> Self {
        let folder = Folder::new(name, true);
        run("mount", &["-t", "bpf", "bpf", folder.0.to_str().unwrap()]);
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0.0
    }

    pub(crate) fn probes(&self) -> usize {
        self.folders().count()
    }

    /// Returns the folder of each probe.
    fn folders(&self) -> impl Iterator<Item = PathBuf> {
        // The kernel puts files of its own there.
        names(self.path()).filter(|name| name.starts_with("biolat-probe-")).map(|name| self.path().join(name))
    }

    /// Returns the folder of the only probe.
    pub(crate) fn probe(&self) -> PathBuf {
        let folders: Vec<_> = self.folders().collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders[0].clone()
    }

    pub(crate) fn files(&self) -> Vec<String> {
        names(&self.probe()).collect()
    }
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap())
}

impl Drop for BpfFileSystem {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path()).status();
    }
}
