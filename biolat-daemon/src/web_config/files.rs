//! Reads the files of a configuration and detects changes. Files are polled, because a watch would have to follow every symbolic
//! link in a path: Kubernetes swaps one when a secret changes.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use ring::digest::{Digest, SHA256, digest};

/// The files read during a load, for detecting changes.
#[derive(Clone, Debug, Default)]
pub(super) struct Files(Vec<ReadFile>);

#[derive(Clone, Debug)]
struct ReadFile {
    path: PathBuf,
    /// Identity just before the file was read.
    identity: Option<FileIdentity>,
    /// Hash of the content; `None` if the file could not be read.
    hash: Option<Digest>,
}

/// Changes whenever a file changes: device, inode, size, mtime and ctime.
type FileIdentity = (u64, u64, u64, (i64, i64), (i64, i64));

impl Files {
    /// Reads a configuration file. A file that exists but cannot be read counts as changed, so the read is retried.
    pub(super) fn read(&mut self, path: &Path) -> Result<Vec<u8>> {
        let identity = identity(path);
        let read = read(path);
        let hash = read.as_ref().ok().map(|content| digest(&SHA256, content));
        self.0.push(ReadFile { path: path.to_owned(), identity: identity.filter(|_| read.is_ok()), hash });
        read.with_context(|| format!("cannot read {}", path.display()))
    }

    /// Whether any file has been replaced, changed, removed or created.
    pub(super) fn changed(&self) -> bool {
        self.0.iter().any(|file| identity(&file.path) != file.identity)
    }

    /// Whether the same files were read, with the same content.
    pub(super) fn same_content(&self, others: &Self) -> bool {
        let content = |file: &ReadFile| Some((file.path.clone(), file.hash?.as_ref().to_vec()));
        self.0.iter().map(content).eq(others.0.iter().map(content))
    }
}

/// Maximum size of a file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Reads a regular file. Does not block on pipes or endless devices.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let file = fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("larger than 1 MiB"));
    }
    Ok(bytes)
}

fn identity(path: &Path) -> Option<FileIdentity> {
    let file = fs::metadata(path).ok()?;
    let written = (file.mtime(), file.mtime_nsec());
    Some((file.dev(), file.ino(), file.size(), written, (file.ctime(), file.ctime_nsec())))
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, path::Path};

    use super::Files;

    /// Reads a directory, which exists but cannot be read as a file.
    #[test]
    fn retries_an_unreadable_file() {
        let mut files = Files::default();
        assert!(files.read(&std::env::temp_dir()).is_err());
        assert!(files.changed());
        let mut files = Files::default();
        assert!(files.read(&std::env::temp_dir().join("biolat-nothing")).is_err());
        assert!(!files.changed());
    }

    #[test]
    fn rejects_large_and_special_files() {
        let folder = std::env::temp_dir().join(format!("biolat-endless-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let large = folder.join("large");
        fs::File::create(&large).unwrap().set_len((1 << 20) + 1).unwrap();
        for (path, expected) in [
            (Path::new("/dev/zero"), "not a regular file"),
            (pipe.as_path(), "not a regular file"),
            (large.as_path(), "larger than 1 MiB"),
        ] {
            let error = format!("{:#}", Files::default().read(path).unwrap_err());
            assert!(error.contains(expected) && error.contains(&*path.to_string_lossy()), "{error}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn detects_a_swapped_symbolic_link() {
        let folder = std::env::temp_dir().join(format!("biolat-files-{}", std::process::id()));
        for generation in ["1", "2"] {
            fs::create_dir_all(folder.join(generation)).unwrap();
            fs::write(folder.join(generation).join("key"), generation).unwrap();
        }
        // The Kubernetes layout: the file is a link into a directory that is itself a link.
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
