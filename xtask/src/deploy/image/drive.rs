//! Provides a loop device on which only this check does I/O.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::process::{output, run};

/// A loop device, detached on drop.
pub(super) struct Drive(PathBuf);

impl Drive {
    pub(super) fn attach(folder: &Path) -> Result<Self> {
        let file = folder.join("drive");
        fs::File::create(&file)?.set_len(16 << 20)?;
        let device = output(Command::new("losetup").args(["--find", "--show"]).arg(&file))?;
        Ok(Self(device.trim().into()))
    }

    /// Reads `requests` blocks with direct I/O, which makes one request per block.
    pub(super) fn read(&self, requests: u64) -> Result<()> {
        let mut dd = Command::new("dd");
        dd.args(["of=/dev/null", "bs=4k", "iflag=direct", "status=none", &format!("count={requests}")]);
        run(dd.arg(format!("if={}", self.0.display())))
    }

    /// Returns the completed reads in the kernel's disk statistics.
    pub(super) fn accounted_reads(&self) -> Result<u64> {
        let path = Path::new("/sys/block").join(self.name()).join("stat");
        let stat = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(stat.split_whitespace().next().context("no statistics")?.parse()?)
    }

    /// Returns the number of reads in `/metrics` in the text format: the reads in the histogram plus the missed reads that the
    /// audit reports. On some kernels, a completion interrupt occasionally runs no BPF program.
    pub(super) fn count_in(&self, metrics: &str) -> u64 {
        self.value(metrics, "biolat_total_latency_seconds_count") + self.missed_in(metrics)
    }

    pub(super) fn missed_in(&self, metrics: &str) -> u64 {
        self.value(metrics, "biolat_unseen_completions_total")
    }

    fn value(&self, metrics: &str, name: &str) -> u64 {
        let series = format!("{name}{{device=\"{}\",op=\"read\"}} ", self.name());
        let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    fn name(&self) -> String {
        self.0.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

impl Drop for Drive {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}
