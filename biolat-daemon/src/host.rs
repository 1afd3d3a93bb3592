//! The host whose disks are measured: where its sysfs and procfs are mounted, and its name.

use std::{fs, path::PathBuf};

/// Mount points of the host's pseudo file systems.
#[derive(Clone, Debug)]
pub struct Host {
    /// Usually `/sys`.
    pub sysfs: PathBuf,
    /// Usually `/proc`.
    pub procfs: PathBuf,
}

impl Host {
    /// The host name; empty if it cannot be read.
    #[must_use]
    pub fn name(&self) -> String {
        let name = fs::read_to_string(self.procfs.join("sys/kernel/hostname"));
        name.unwrap_or_default().trim().to_owned()
    }
}
