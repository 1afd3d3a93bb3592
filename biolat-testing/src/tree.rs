//! A temporary fake sysfs.

use std::{fs, path::PathBuf};

/// The root directory, which is removed on drop.
pub struct Tree(pub PathBuf);

impl Tree {
    /// Creates a tree with the given files under `block`.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("biolat-sysfs-{name}-{}", std::process::id()));
        let tree = Self(root);
        for (path, text) in files {
            tree.write(&format!("block/{path}"), text.as_bytes());
        }
        tree
    }

    /// Writes a file. `path` is relative to the root.
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
