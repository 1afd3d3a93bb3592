//! The device or file that a benchmark reads from.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

const SCRATCH_BYTES: u64 = 1 << 30;

/// A block device to read from, or a file on one.
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// The sysfs directory of the underlying device.
    sysfs: PathBuf,
    /// Whether the bench created the file and must remove it.
    is_ours: bool,
}

impl Target {
    /// A target named by the user.
    pub(crate) fn named(path: PathBuf) -> Result<Self> {
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let sysfs = PathBuf::from(format!("/sys/dev/block/{}:{}", libc::major(device), libc::minor(device)));
        if !sysfs.join("stat").exists() {
            bail!("{} is on no block device: name one, or a file on one, with --path", path.display());
        }
        Ok(Self { path, sysfs, is_ours: false })
    }

    /// A file in the build directory.
    pub(crate) fn scratch() -> Result<Self> {
        let path = PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/load"));
        let written = (|| {
            let mut file = fs::File::create(&path)?;
            let part = vec![0x5a_u8; 1 << 20];
            for _ in 0..SCRATCH_BYTES >> 20 {
                file.write_all(&part)?;
            }
            file.sync_all()
        })();
        let target = written.with_context(|| format!("cannot create {}", path.display()));
        match target.and_then(|()| Self::named(path.clone())) {
            Ok(mut target) => {
                target.is_ours = true;
                Ok(target)
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    /// The kernel's name of the disk.
    pub(crate) fn disk(&self) -> Result<String> {
        let device = fs::canonicalize(&self.sysfs).context("cannot resolve a link in sysfs")?;
        let disk = if device.join("partition").exists() { device.parent() } else { Some(&*device) };
        let name = disk.and_then(Path::file_name).context("a device in sysfs has no name")?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Number of reads that the device has completed.
    pub(crate) fn reads(&self) -> Result<u64> {
        let path = self.sysfs.join("stat");
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let first = text.split_whitespace().next().and_then(|field| field.parse().ok());
        first.with_context(|| format!("{} is not diskstats", path.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}
