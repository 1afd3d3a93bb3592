//! Provides a minimal Debian system to install the package in. It is built once with debootstrap and copied for each check.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};

use crate::{
    host::tool,
    process::{output, root, run},
    vm::debian_mirror,
};

/// Debian release. The boot check uses its kernel.
pub(super) const RELEASE: &str = "bookworm";

/// Packages that a typical server has in addition to the minimal system, and tools for the checks.
const PACKAGES: &str = "ca-certificates,curl,libcap2-bin,man-db,procps,systemd,systemd-sysv";

/// A minimal Debian system in a directory, removed on drop.
pub(super) struct CleanRoot(PathBuf);

impl CleanRoot {
    /// Makes a fresh copy.
    pub(super) fn new(name: &str) -> Result<Self> {
        let clean = clean_system()?;
        let folder = root().join("target/deploy");
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let copy = Self(folder.join(name));
        copy.remove();
        run(Command::new("cp").arg("--archive").arg(&clean).arg(&copy.0))?;
        Ok(copy)
    }

    /// Returns the host path of a path in the system.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Returns a command that runs in the system, as root.
    pub(super) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.0).arg(program).args(arguments);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command
    }

    /// Installs a package file from the host.
    pub(super) fn install(&self, package: &Path) -> Result<()> {
        fs::copy(package, self.path("/tmp/package.deb"))?;
        run(&mut self.command("dpkg", &["--install", "/tmp/package.deb"]))?;
        Ok(fs::remove_file(self.path("/tmp/package.deb"))?)
    }

    /// Lists every file, directory and link in the system.
    pub(super) fn files(&self) -> Result<BTreeSet<String>> {
        let mut find = Command::new("find");
        find.arg(&self.0).args(["-mindepth", "1", "-printf", "/%P\n"]);
        Ok(output(&mut find)?.lines().map(str::to_owned).collect())
    }

    fn remove(&self) {
        // Stay on one file system, although nothing should be mounted there.
        let _ =
            Command::new("rm").args(["--recursive", "--force", "--one-file-system"]).arg(&self.0).status();
    }
}

impl Drop for CleanRoot {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Returns the system to copy. It is rebuilt if it is older than a week.
fn clean_system() -> Result<PathBuf> {
    const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);
    let folder = tool("clean-root");
    let (clean, half) = (folder.join(RELEASE), folder.join("half"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let age =
        fs::metadata(&clean).and_then(|data| data.modified()).map(|made| made.elapsed().unwrap_or_default());
    let fresh = age.is_ok_and(|age| age < WEEK);
    if fresh {
        return Ok(clean);
    }
    for old in [&clean, &half] {
        CleanRoot(old.clone()).remove();
    }
    let mirror =
        debian_mirror("Debian")?.context("apt has no mirror of Debian's archive: run apt-get update")?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", "--include", PACKAGES, RELEASE]).arg(&half).arg(mirror);
    output(&mut debootstrap)?;
    fs::rename(&half, &clean)?;
    Ok(clean)
}
