//! A loop device for a test.

use std::{fs, path::PathBuf};

use super::{Folder, block, run};

/// A loop device attached to a file, detached on drop.
pub(crate) struct LoopDevice {
    /// Name such as `loop3`.
    pub(crate) name: String,
    folder: Folder,
}

const MIB: u64 = 1 << 20;

impl LoopDevice {
    /// Attaches a 512 MiB device: backed by memory if `fast`, otherwise by a disk, bypassing the page cache.
    pub(crate) fn attach(name: &str, fast: bool) -> Self {
        Self::attach_in(Folder::new(name, fast), !fast)
    }

    /// Attaches a 512 MiB device backed by a file in this folder.
    pub(crate) fn attach_in(folder: Folder, direct: bool) -> Self {
        let file = make_file(&folder, "a");
        let direct = if direct { "--direct-io=on" } else { "--direct-io=off" };
        let path = run("losetup", &["--find", "--show", direct, file.to_str().unwrap()]);
        let name = path.trim().trim_start_matches("/dev/").to_owned();
        // A loop device keeps its attributes after its file is detached, so reset any that an earlier user may have set.
        block::set_attribute(&name, "queue/iostats", "1");
        Self { name, folder }
    }

    pub(crate) fn path(&self) -> PathBuf {
        block::path(&self.name)
    }

    /// Opens the first backing file.
    pub(crate) fn file(&self) -> fs::File {
        fs::OpenOptions::new().read(true).write(true).open(self.folder.0.join("a")).unwrap()
    }

    pub(crate) fn detach(&self) {
        run("losetup", &["--detach", self.path().to_str().unwrap()]);
    }

    /// Attaches another file to the same device.
    pub(crate) fn attach_another(&self, name: &str) {
        let file = make_file(&self.folder, name);
        run("losetup", &[self.path().to_str().unwrap(), file.to_str().unwrap()]);
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").arg("--detach").arg(self.path()).output();
    }
}

fn make_file(folder: &Folder, name: &str) -> PathBuf {
    let path = folder.0.join(name);
    fs::File::create(&path).unwrap().set_len(512 * MIB).unwrap();
    path
}
