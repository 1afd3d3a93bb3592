//! A temporary sysfs for tests.

use std::{fs, path::PathBuf};

/// Its mount point, removed when dropped.
pub struct Tree(pub PathBuf);

impl Tree {
    /// With these files below `block`.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("biolat-sysfs-{name}-{}", std::process::id()));
        let tree = Self(root);
        for (path, text) in files {
            tree.write(&format!("block/{path}"), text.as_bytes());
        }
        tree
    }

    /// Adds a file, anywhere below the root.
    pub fn write(&self, path: &str, bytes: &[u8]) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
