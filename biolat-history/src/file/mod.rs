//! The history on disk, which survives restarts: two files, used in turn. One is appended to until it reaches twice the store's
//! size limit; then the whole store is written to the other one.

mod contents;
mod log;
#[cfg(test)]
mod tests;
mod thread;

use std::{
    cmp::Reverse,
    fs::{File, OpenOptions},
    io,
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::geteuid,
};

use super::{
    HistoryLimits, SharedHistory,
    names::Names,
    part::{Mark, Restoring},
};
use log::{MAGIC, Records};
pub use thread::FileWriter;

/// Minimum size of the appended part, on top of the store's size limit.
const MIN_APPENDED: u64 = 1 << 20;

/// Bytes written at a time.
const PIECE: usize = 1 << 20;

/// The origin of a history: only counters from the same origin can be continued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The kernel's boot id.
    pub boot: String,
    /// The selection of devices, in any notation; it is only compared.
    pub devices: String,
}

/// Two files that no other daemon uses while this one has them open.
pub(crate) struct HistoryFile {
    /// Path of the first file, as given by the user.
    path: PathBuf,
    files: [File; 2],
    /// The file in use.
    in_use: usize,
    /// Number of times that a file was started over.
    generation: u64,
    /// Length of the file in use.
    bytes: u64,
    names: Names,
    /// The latest interval in the file in use. `None` if everything has to be written to the other file.
    written: Option<Mark>,
    /// Whether another program has changed the file in use since the last write.
    was_changed: bool,
    origin: Origin,
}

/// The outcome of reading the files.
struct Found {
    restoring: Restoring,
    /// Whether the newest file was read to its end.
    is_whole: bool,
}

impl HistoryFile {
    /// Opens the files. They must be locked before they are read.
    pub(crate) fn open(path: &Path, origin: Origin) -> Result<Self> {
        let files = [open(path)?, open(&second_path(path))?];
        let (path, names) = (path.to_owned(), Names::default());
        // The first write goes to the first file.
        let (in_use, generation, bytes, written, was_changed) = (1, 0, 0, None, false);
        Ok(Self { path, files, in_use, generation, bytes, names, written, was_changed, origin })
    }

    /// Locks the files. Returns false if another process has locked one of them.
    fn lock(&self) -> Result<bool> {
        let paths = [&self.path, &second_path(&self.path)];
        for (file, path) in self.files.iter().zip(paths) {
            match flock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(error) => return Err(error).with_context(|| format!("cannot lock {}", path.display())),
            }
        }
        for (file, path) in self.files.iter().zip(paths) {
            check_magic(file, path)?;
        }
        Ok(true)
    }

    pub(crate) fn fds(&self) -> [RawFd; 2] {
        self.files.each_ref().map(|file| file.as_raw_fd())
    }

    /// Whether both files are empty.
    fn is_empty(&self) -> bool {
        self.files.iter().all(|file| file.metadata().is_ok_and(|metadata| metadata.len() == 0))
    }

    /// Reads the newest file that is intact at least up to the totals. `None` if neither is.
    fn read(&mut self, limits: HistoryLimits) -> Option<Found> {
        let numbered = self.files.iter().enumerate();
        let mut found: Vec<_> =
            numbered.filter_map(|(number, file)| Some((log::generation(file)?, number))).collect();
        found.sort_unstable_by_key(|&found| Reverse(found));
        self.generation = found.first().map_or(0, |(generation, _)| *generation);
        for (place, (generation, number)) in found.into_iter().enumerate() {
            let mut restoring = Restoring::new(limits);
            let is_whole = contents::read(&self.files[number], generation, &self.origin, &mut restoring);
            if restoring.has_totals() {
                self.in_use = number;
                return Some(Found { restoring, is_whole: is_whole && place == 0 });
            }
        }
        None
    }

    /// Writes what was recorded since the last write.
    fn write(&mut self, history: &SharedHistory) -> io::Result<()> {
        if self.is_changed() {
            ::log::warn!(
                "the history in {} was changed by another program: writing all of it again",
                self.path.display()
            );
            (self.written, self.was_changed) = (None, true);
        }
        let most = 2 * history.limits().bytes as u64 + MIN_APPENDED;
        let Some(part) = history.part(self.written.filter(|_| self.bytes < most)) else { return Ok(()) };
        if part.totals.is_some() {
            self.written = None;
            // The current file has to be on disk before the other one is started over.
            self.files[self.in_use].sync_data()?;
            let next = 1 - self.in_use;
            self.files[next].set_len(0)?;
            let records = Records::begin(self.generation + 1);
            self.bytes =
                self.write_to(next, 0, contents::add(records, &part, &Names::default(), &self.origin))?;
            self.generation += 1;
            self.in_use = next;
            if std::mem::take(&mut self.was_changed) {
                // Otherwise the next daemon might take it for another program's file.
                let _ = self.files[1 - next].set_len(0);
            }
        } else {
            let records = Records::next(self.generation);
            let records = contents::add(records, &part, &self.names, &self.origin);
            self.bytes = self.write_to(self.in_use, self.bytes, records)?;
        }
        self.names = part.names;
        self.written = Some(part.mark);
        Ok(())
    }

    /// Whether the file in use differs from what was last written: it was truncated, or replaced in place.
    fn is_changed(&self) -> bool {
        let file = &self.files[self.in_use];
        let is_same = || {
            file.metadata().is_ok_and(|metadata| metadata.len() == self.bytes)
                && log::generation(file) == Some(self.generation)
        };
        self.written.is_some() && !is_same()
    }

    /// Whether a file was deleted, in which case anything written to it is lost.
    fn is_removed(&self) -> bool {
        self.files.iter().any(|file| file.metadata().is_ok_and(|metadata| metadata.nlink() == 0))
    }

    /// Writes at the end of a file and returns its new length. After an error, the file has its old length.
    fn write_to(&self, number: usize, began: u64, pieces: impl Iterator<Item = Vec<u8>>) -> io::Result<u64> {
        let file = &self.files[number];
        let mut end = began;
        for piece in pieces {
            if let Err(error) = file.write_all_at(&piece, end) {
                // Do not leave the disk full.
                let _ = file.set_len(began);
                return Err(error);
            }
            end += piece.len() as u64;
        }
        Ok(end)
    }
}

fn second_path(path: &Path) -> PathBuf {
    let mut second = path.as_os_str().to_owned();
    second.push(".2");
    second.into()
}

/// Opens a file that belongs to this user, or creates it.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).mode(0o600);
    // Do not follow another user's symbolic link, and do not wait for the other end of a pipe.
    options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed());
    let shown = path.display();
    let file = options.open(path).with_context(|| format!("cannot open {shown}"))?;
    let metadata = file.metadata().with_context(|| format!("cannot read {shown}"))?;
    if !metadata.is_file() {
        bail!("{shown} is not a regular file");
    }
    if metadata.uid() != geteuid().as_raw() || metadata.nlink() > 1 {
        bail!("{shown} belongs to another user, or has a second hard link");
    }
    Ok(file)
}

/// Returns an error unless the file is empty or biolat's.
fn check_magic(file: &File, path: &Path) -> Result<()> {
    let shown = path.display();
    let mut begin = [0; MAGIC.len()];
    let length = file.read_at(&mut begin, 0).with_context(|| format!("cannot read {shown}"))?;
    if length > 0 && begin[..length] != MAGIC[..length] {
        bail!("{shown} is not a biolat history, and is left unchanged");
    }
    Ok(())
}
