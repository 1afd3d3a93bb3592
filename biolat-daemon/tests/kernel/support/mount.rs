//! A mounted file system.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use super::{Folder, run};

/// Mounted on a folder of its own; unmounted when it is dropped.
pub(crate) struct Mount(Folder);

impl Mount {
    /// Mounts with these arguments of mount(8), without the place.
    pub(crate) fn new(name: &str, arguments: &[&str]) -> Self {
        let mount = Self(Folder::new(&format!("{name}-mount"), true));
        run("mount", &[arguments, &[mount.place()]].concat());
        mount
    }

    /// Makes an ext4 on a device, and mounts it.
    pub(crate) fn new_ext4(name: &str, device: &Path) -> Self {
        let device = device.to_str().unwrap();
        run("mkfs.ext4", &["-q", "-F", device]);
        Self::new(name, &["-t", "ext4", device])
    }

    pub(crate) fn place(&self) -> &str {
        self.0.0.to_str().unwrap()
    }

    /// A new folder on it.
    pub(crate) fn folder(&self) -> Folder {
        let folder = Folder(self.0.0.join("files"));
        fs::create_dir(&folder.0).unwrap();
        folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The kernel may still be detaching the loop device of a file.
        for _ in 0..50 {
            let unmounted = Command::new("umount").arg(&self.0.0).output();
            if unmounted.is_ok_and(|output| output.status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
