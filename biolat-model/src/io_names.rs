//! What an I/O was for: the file and the process of a slow or failed I/O.

use serde::{Deserialize, Serialize};

use crate::{name::Name, text::sanitize};

/// What is known about the file and the process of an I/O. Everything is unknown if names are switched off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoNames {
    /// What the I/O reads or writes: see [`class`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub class: Option<Name>,
    /// The file, if the class is a file.
    pub file: Option<IoFile>,
    /// Why the class is unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub file_unknown: Option<Name>,
    /// The process that waits for the I/O, submitted it, or owns its buffer.
    pub process: Option<IoProcess>,
    /// Why the process is unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub process_unknown: Option<Name>,
}

/// A file on a file system that uses the device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoFile {
    /// Path below the mount point, or below the root of the file system if that is not mounted here. `/…` replaces the outer
    /// directories of a path of more than ten components. Empty if the file has no name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub path: String,
    /// Where the file system is mounted, if it is mounted in the daemon's mount namespace.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub mount: Option<String>,
    /// Type of the file system: `ext4`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub file_system: String,
    pub inode: u64,
    /// Whether the file had been removed when the I/O completed.
    pub removed: bool,
}

/// The process of an I/O.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct IoProcess {
    /// Process id, which is the thread group's.
    pub id: u32,
    /// The command of the process, up to 15 characters.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub command: String,
    /// How the process is known: `waiter`, `io_uring`, `libaio`, `buffer owner` or `page waiter`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub known_by: Name,
}

/// Values of [`IoNames::class`].
pub mod class {
    pub const FILE: &str = "file";
    pub const JOURNAL: &str = "journal";
    pub const METADATA: &str = "metadata";
    pub const RAW_DEVICE: &str = "raw device";
    pub const SWAP: &str = "swap";
    pub const DISCARD: &str = "discard";
    pub const FLUSH: &str = "flush";
}

impl IoFile {
    /// The path as a user would type it, if the file system is mounted here.
    #[must_use]
    pub fn shown_path(&self) -> String {
        let mount = self.mount.as_deref().map_or("", |mount| mount.trim_end_matches('/'));
        let path = if self.path.is_empty() { format!("/inode {}", self.inode) } else { self.path.clone() };
        format!("{mount}{path}{}", if self.removed { " (deleted)" } else { "" })
    }
}

impl IoNames {
    /// What the I/O reads or writes: a path, or `journal`. `None` for a flush or a discard, whose op says everything.
    #[must_use]
    pub fn shown_target(&self) -> Option<String> {
        match (&self.file, self.class.as_deref()) {
            (Some(file), _) => Some(file.shown_path()),
            (None, Some(class::FLUSH | class::DISCARD)) => None,
            (None, class) => class.map(str::to_owned),
        }
    }

    /// `postgres[4711]`
    #[must_use]
    pub fn shown_process(&self) -> Option<String> {
        self.process.as_ref().map(IoProcess::shown)
    }
}

impl IoProcess {
    /// `postgres[4711]`
    #[must_use]
    pub fn shown(&self) -> String {
        format!("{}[{}]", self.command, self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::{IoFile, IoNames, class};

    #[test]
    fn shows_paths() {
        let file = |mount: Option<&str>, path: &str, removed| IoFile {
            path: path.into(),
            mount: mount.map(str::to_owned),
            inode: 12,
            removed,
            ..IoFile::default()
        };
        for (file, shown) in [
            (file(Some("/"), "/var/lib/a", false), "/var/lib/a"),
            (file(Some("/srv"), "/…/b/c", false), "/srv/…/b/c"),
            (file(None, "/a", true), "/a (deleted)"),
            (file(Some("/srv"), "", false), "/srv/inode 12"),
        ] {
            assert_eq!(file.shown_path(), shown);
        }
    }

    #[test]
    fn shows_class_without_file() {
        let names = IoNames { class: Some(class::JOURNAL.into()), ..IoNames::default() };
        assert_eq!(names.shown_target().as_deref(), Some("journal"));
        assert_eq!(IoNames::default().shown_target(), None);
        let flush = IoNames { class: Some(class::FLUSH.into()), ..names };
        assert_eq!(flush.shown_target(), None);
    }
}
