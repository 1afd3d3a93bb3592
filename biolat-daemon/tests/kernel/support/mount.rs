//! A mounted file system.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use super::{Folder, run};

/// A file system mounted on its own folder, unmounted on drop.
pub(crate) struct Mount(Folder);

impl Mount {
    /// Runs mount(8) with these arguments, followed by the mount point.
    pub(crate) fn new(name: &str, arguments: &[&str]) -> Self {
        let mount = Self(Folder::new(&format!("{name}-mount"), true));
        run("mount", &[arguments, &[mount.place()]].concat());
        mount
    }

    /// Creates an ext4 file system on a device and mounts it.
    pub(crate) fn new_ext4(name: &str, device: &Path) -> Self {
        Self::with_new("ext4", name, device)
    }

    /// Creates a file system on a device and mounts it.
    pub(crate) fn with_new(filesystem: &str, name: &str, device: &Path) -> Self {
        make(filesystem, device);
        Self::new(name, &["-t", filesystem, device.to_str().unwrap()])
    }

    pub(crate) fn place(&self) -> &str {
        self.0.0.to_str().unwrap()
    }

    /// Creates a folder on the file system.
    pub(crate) fn folder(&self) -> Folder {
        let folder = Folder(self.0.0.join("files"));
        fs::create_dir(&folder.0).unwrap();
        folder
    }
}

/// Creates an ext4, xfs or btrfs file system, regardless of the device's content and size.
pub(crate) fn make(filesystem: &str, device: &Path) {
    let options = match filesystem {
        "xfs" => &["-q", "-f", "--unsupported"][..],
        "btrfs" => &["-q", "-f"],
        _ => &["-q", "-F"],
    };
    run(&format!("mkfs.{filesystem}"), &[options, &[device.to_str().unwrap()]].concat());
}

impl Drop for Mount {
    fn drop(&mut self) {
        // A loop device on one of its files may still be detaching.
        for _ in 0..50 {
            let unmounted = Command::new("umount").arg(&self.0.0).output();
            if unmounted.is_ok_and(|output| output.status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
