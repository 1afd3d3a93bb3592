//! Loop devices for this benchmark.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::Command,
};

use anyhow::{Context as _, Result, bail};

/// Detached when they are dropped.
pub(crate) struct Disks(Vec<PathBuf>);

impl Disks {
    pub(crate) fn attach(count: usize) -> Result<Self> {
        let mut disks = Self(Vec::new());
        for number in 0..count {
            let file = PathBuf::from(format!("{}/disk-{number}", env!("CARGO_TARGET_TMPDIR")));
            fs::write(&file, vec![0x5a; 4 << 20])
                .with_context(|| format!("cannot make {}", file.display()))?;
            let output = Command::new("losetup").args(["--find", "--show"]).arg(&file).output();
            // The loop device keeps the deleted file open.
            let _ = fs::remove_file(&file);
            let output = output.context("cannot run losetup (Debian: mount)")?;
            if !output.status.success() {
                bail!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim());
            }
            disks.0.push(String::from_utf8(output.stdout)?.trim().into());
        }
        Ok(disks)
    }

    /// A regular expression that matches their names.
    pub(crate) fn pattern(&self) -> String {
        let names = self.0.iter().filter_map(|path| path.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join("|")
    }

    /// Reads and writes, so that each device has both series.
    pub(crate) fn read_and_write(&self) -> Result<()> {
        for path in &self.0 {
            let mut disk = fs::OpenOptions::new().read(true).write(true).open(path)?;
            disk.read_exact(&mut vec![0; 1 << 20])?;
            disk.write_all(&vec![1; 1 << 20])?;
            disk.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        for path in &self.0 {
            let _ = Command::new("losetup").arg("--detach").arg(path).output();
        }
    }
}
