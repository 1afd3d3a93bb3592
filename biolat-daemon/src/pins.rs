//! A folder of a BPF file system in which a probe and its state are kept, where there is no systemd to keep them: each probe has a
//! folder of its own, with a file for each map, program and link.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    fs::{FlockOperation, flock, fstatfs},
    io::Errno,
};

use crate::{passed_fds::KEPT_PREFIX, probe};

/// `BPF_FS_MAGIC`.
const BPF_FILE_SYSTEM: u64 = 0xcafe_4a11;

/// How long to wait for another process to leave the folder: `check` uses it for a moment.
const PATIENCE: Duration = Duration::from_secs(1);

/// The folder, which no other daemon uses as long as this one has it open.
#[derive(Debug)]
pub(crate) struct Pins {
    folder: PathBuf,
    _lock: File,
}

impl Pins {
    pub(crate) fn open(folder: &Path) -> Result<Self> {
        let began = Instant::now();
        loop {
            match Self::open_unless_used(folder)? {
                Some(pins) => return Ok(pins),
                None if began.elapsed() < PATIENCE => thread::sleep(PATIENCE / 20),
                None => bail!(
                    "another biolat keeps its probe in {}: end it, or choose another folder",
                    folder.display()
                ),
            }
        }
    }

    /// None if another daemon uses it.
    pub(crate) fn open_unless_used(folder: &Path) -> Result<Option<Self>> {
        let shown = folder.display();
        let lock = File::open(folder).with_context(|| format!("cannot open {shown} to keep the probe in"))?;
        let kind = fstatfs(&lock).with_context(|| format!("cannot read what file system {shown} is on"))?;
        if kind.f_type as u64 & 0xffff_ffff != BPF_FILE_SYSTEM {
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

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The names of what is kept: of each probe.
    pub(crate) fn probes(&self) -> Result<Vec<String>> {
        Ok(names(&self.folder)?.into_iter().filter(|name| name.starts_with(KEPT_PREFIX)).collect())
    }

    /// What is kept of a probe, with the name of each file.
    pub(crate) fn open_all(&self, probe: &str) -> Result<Vec<(String, OwnedFd)>> {
        let folder = self.folder.join(probe);
        let mut found = Vec::new();
        for name in names(&folder)? {
            let path = folder.join(&name);
            let fd = probe::open_pinned(&path).with_context(|| format!("cannot open {}", path.display()))?;
            found.push((name, fd));
        }
        Ok(found)
    }

    /// Keeps more of a probe, in files that begin with a name and a number, from this one on.
    pub(crate) fn add(&self, probe: &str, name: &str, first: usize, fds: &[BorrowedFd<'_>]) -> Result<()> {
        let folder = self.folder.join(probe);
        if !folder.is_dir() {
            fs::create_dir(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for (fd, number) in fds.iter().zip(first..) {
            let path = folder.join(format!("{name}-{number}"));
            probe::pin(fd.as_fd(), &path).with_context(|| format!("cannot pin to {}", path.display()))?;
        }
        Ok(())
    }

    /// Removes all that is kept of a probe. The links first: then the probe does not count any more.
    pub(crate) fn remove(&self, probe: &str) -> Result<()> {
        let folder = self.folder.join(probe);
        if !folder.is_dir() {
            return Ok(());
        }
        let mut files = names(&folder)?;
        files.sort_by_key(|name| !name.starts_with("links"));
        for name in files {
            let path = folder.join(name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        fs::remove_dir(&folder).with_context(|| format!("cannot remove {}", folder.display()))
    }
}

/// Removes what was kept in a folder, by a daemon that does not run any more.
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

fn names(folder: &Path) -> Result<Vec<String>> {
    let read = || -> io::Result<Vec<String>> {
        let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    };
    read().with_context(|| format!("cannot list {}", folder.display()))
}
