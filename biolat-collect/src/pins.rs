//! A directory in a BPF file system that keeps a probe and its state if systemd cannot. Each probe has a subdirectory, with a
//! file for each map, program and link.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Error, Result, anyhow, bail};
use biolat_model::shell;
use biolat_system::passed_fds::KEPT_PREFIX;
use rustix::{
    fs::{FlockOperation, flock, fstatfs},
    io::Errno,
};

/// `BPF_FS_MAGIC`.
const BPF_FILE_SYSTEM: u64 = 0xcafe_4a11;

/// How long to wait for another process to release the directory: `check` holds it briefly.
const PATIENCE: Duration = Duration::from_secs(1);

/// The pin directory, locked against other daemons while this one has it open.
#[derive(Debug)]
pub struct Pins {
    folder: PathBuf,
    _lock: File,
}

impl Pins {
    /// Opens the directory for the daemon. If it is missing, creates it on a BPF file system.
    pub fn open_or_create(folder: &Path) -> Result<Self> {
        if is_missing(folder)? {
            fs::create_dir(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Self::open(folder)
    }

    pub fn open(folder: &Path) -> Result<Self> {
        let began = Instant::now();
        loop {
            match Self::open_unless_used(folder)? {
                Some(pins) => return Ok(pins),
                None if began.elapsed() < PATIENCE => thread::sleep(PATIENCE / 20),
                None => bail!(
                    "another biolat keeps its probe in {}: stop it, or choose another folder",
                    folder.display()
                ),
            }
        }
    }

    /// Returns `None` if another daemon uses the directory.
    pub fn open_unless_used(folder: &Path) -> Result<Option<Self>> {
        let shown = folder.display();
        let lock = File::open(folder).map_err(|error| cannot_open(folder, error))?;
        if !is_on_bpf_file_system(&lock, folder)? {
            bail!(
                "{shown} is not on a BPF file system: mount one there (mount -t bpf bpf {shown}), or choose another folder"
            );
        }
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { folder: folder.to_owned(), _lock: lock })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot lock {shown}")),
        }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the names of the kept probes. A directory that contains only subdirectories, which biolat never creates, is not a
    /// probe.
    pub fn probes(&self) -> Result<Vec<String>> {
        let is_foreign = |name: &String| {
            let inside = entries(&self.folder.join(name)).unwrap_or_default();
            !inside.is_empty() && inside.iter().all(|entry| entry.is_folder)
        };
        let names = entries(&self.folder)?.into_iter().map(|entry| entry.name);
        Ok(names.filter(|name| name.starts_with(KEPT_PREFIX) && !is_foreign(name)).collect())
    }

    /// Opens everything that is kept for a probe, and returns the descriptors with their file names. Skips directories, which
    /// biolat never creates there.
    pub fn open_all(&self, probe: &str) -> Result<Vec<(String, OwnedFd)>> {
        let folder = self.folder.join(probe);
        let mut found = Vec::new();
        for Entry { name, .. } in entries(&folder)?.into_iter().filter(|entry| !entry.is_folder) {
            let path = folder.join(&name);
            let fd = biolat_probe::open_pinned(&path)
                .with_context(|| format!("cannot open {}", path.display()))?;
            found.push((name, fd));
        }
        Ok(found)
    }

    /// Pins more descriptors of a probe as `<name>-<number>`, with numbers from `first`.
    pub fn add(&self, probe: &str, name: &str, first: usize, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let folder = self.folder.join(probe);
        if !folder.is_dir() {
            fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for (fd, number) in fds.iter().zip(first..) {
            let path = folder.join(format!("{name}-{number}"));
            biolat_probe::pin(fd.as_fd(), &path)
                .with_context(|| format!("cannot pin to {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes the files of a probe that have this name and one of these numbers.
    pub fn remove_kind(&self, probe: &str, name: &str, numbers: impl Fn(usize) -> bool) -> Result<()> {
        let folder = self.folder.join(probe);
        let is_affected = |entry: &Entry| {
            let number =
                entry.name.split_once('-').filter(|(kind, _)| *kind == name).map(|(_, number)| number);
            !entry.is_folder && number.and_then(|number| number.parse().ok()).is_some_and(&numbers)
        };
        for entry in entries(&folder)?.iter().filter(|entry| is_affected(entry)) {
            let path = folder.join(&entry.name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes everything that is kept for a probe, links first: without them the probe stops counting.
    pub fn remove(&self, probe: &str) -> Result<()> {
        let folder = self.folder.join(probe);
        if !folder.is_dir() {
            return Ok(());
        }
        let mut entries = entries(&folder)?;
        entries.sort_by_key(|entry| !entry.name.starts_with("links"));
        let mut has_foreign = false;
        for Entry { name, is_folder } in entries {
            let path = folder.join(name);
            if is_folder {
                has_foreign |= fs::remove_dir(&path).is_err();
            } else {
                fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
        if has_foreign {
            log::warn!(
                "{} contains other folders that are not empty: removed the probe, kept the folder",
                folder.display()
            );
            return Ok(());
        }
        fs::remove_dir(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// Removes everything that a daemon kept in a directory. The daemon must have been stopped.
pub fn unpin(folder: &Path) -> Result<()> {
    let pins = Pins::open(folder)?;
    let probes = pins.probes()?;
    for probe in &probes {
        pins.remove(probe)?;
        println!("removed {}", folder.join(probe).display());
    }
    if probes.is_empty() {
        println!("nothing is kept in {}", folder.display());
    }
    Ok(())
}

/// Whether a directory is missing but can be created, because its parent is on a BPF file system.
pub fn is_missing(folder: &Path) -> Result<bool> {
    if folder.exists() {
        return Ok(false);
    }
    let parent = folder.parent().filter(|parent| parent.is_dir()).map(|parent| (parent, File::open(parent)));
    match parent {
        Some((parent, Ok(opened))) => is_on_bpf_file_system(&opened, parent),
        _ => Ok(false),
    }
}

fn is_on_bpf_file_system(opened: &File, folder: &Path) -> Result<bool> {
    let kind = fstatfs(opened)
        .with_context(|| format!("cannot determine the file system of {}", folder.display()))?;
    Ok(kind.f_type as u64 & 0xffff_ffff == BPF_FILE_SYSTEM)
}

fn cannot_open(folder: &Path, error: io::Error) -> Error {
    let shown = folder.display();
    let quoted = shell::quoted(&folder.to_string_lossy()).into_owned();
    let fix = match error.kind() {
        io::ErrorKind::NotFound => {
            format!(": mount a BPF file system there (mkdir -p {quoted} && mount -t bpf bpf {quoted})")
        }
        _ => String::new(),
    };
    anyhow!("cannot open {shown} to keep the probe in: {error}{fix}")
}

/// An entry of a directory.
struct Entry {
    name: String,
    is_folder: bool,
}

fn entries(folder: &Path) -> Result<Vec<Entry>> {
    let read = || -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if let Ok(name) = entry.file_name().into_string() {
                found.push(Entry { name, is_folder: entry.file_type()?.is_dir() });
            }
        }
        Ok(found)
    };
    read().with_context(|| format!("cannot list {}", folder.display()))
}
