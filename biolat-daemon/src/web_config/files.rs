//! The files that a configuration is read from, and whether they are still the same. Looking is enough: a watch
//! would have to follow every symbolic link on the way, which Kubernetes swaps when a secret changes.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// What was read, with what the files were like just before.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Vec<(PathBuf, Option<Stamp>)>);

/// What changes when a file does: device, inode, size, and when its content and its inode were last written.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    /// Reads a file that belongs to the configuration. One that is there and cannot be read counts as changed: it may be
    /// read the next time.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>> {
        let stamp = stamp(path);
        let read = fs::read(path);
        self.0.push((path.to_owned(), stamp.filter(|_| read.is_ok())));
        read.with_context(|| format!("cannot read {}", path.display()))
    }

    /// Whether any of them is another one, or gone, or there at last.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|(path, before)| stamp(path) != *before)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let file = fs::metadata(path).ok()?;
    let written = (file.mtime(), file.mtime_nsec());
    Some((file.dev(), file.ino(), file.size(), written, (file.ctime(), file.ctime_nsec())))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::Files;

    /// A folder is there, and reading it fails.
    #[test]
    fn what_cannot_be_read_is_tried_again() {
        let mut files = Files::default();
        assert!(files.read(&std::env::temp_dir()).is_err());
        assert!(files.changed());
        let mut files = Files::default();
        assert!(files.read(&std::env::temp_dir().join("biolat-nothing")).is_err());
        assert!(!files.changed());
    }

    #[test]
    fn a_swapped_link_is_a_change() {
        let folder = std::env::temp_dir().join(format!("biolat-files-{}", std::process::id()));
        for generation in ["1", "2"] {
            fs::create_dir_all(folder.join(generation)).unwrap();
            fs::write(folder.join(generation).join("key"), generation).unwrap();
        }
        // As Kubernetes does it: the file is a link into a folder that is a link.
        symlink("1", folder.join("..data")).unwrap();
        symlink("..data/key", folder.join("key")).unwrap();
        let mut files = Files::default();
        assert_eq!(files.read(&folder.join("key")).unwrap(), b"1");
        assert!(files.read(&folder.join("missing")).is_err());
        assert!(!files.changed());
        symlink("2", folder.join("..next")).unwrap();
        fs::rename(folder.join("..next"), folder.join("..data")).unwrap();
        assert!(files.changed());
        let mut files = Files::default();
        assert_eq!(files.read(&folder.join("key")).unwrap(), b"2");
        let _ = files.read(&folder.join("missing"));
        assert!(!files.changed());
        fs::write(folder.join("missing"), "").unwrap();
        assert!(files.changed());
        fs::remove_dir_all(folder).unwrap();
    }
}
