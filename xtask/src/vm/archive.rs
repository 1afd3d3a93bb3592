//! Downloads packages from a suite of Debian's archive, for any architecture. apt runs with separate directories, so it needs no
//! root and ignores the machine's own packages.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use crate::{folder::make_empty, process::output, static_build::Architecture};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A suite whose package lists have been downloaded.
pub(super) struct Archive<'a> {
    folder: &'a Path,
    architecture: Architecture,
}

impl<'a> Archive<'a> {
    /// Downloads the package lists of a suite into a directory.
    pub(super) fn update(folder: &'a Path, suite: &str, architecture: Architecture) -> Result<Self> {
        fs::create_dir_all(folder.join("lists/partial"))?;
        fs::create_dir_all(folder.join("cache/archives/partial"))?;
        let line = |mirror: String, suite: &str| format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n");
        let main = debian_mirror("Debian")?.context(
            "apt has no mirror of Debian's archive: run apt-get update, or name a kernel with --kernel and --modules",
        )?;
        // Security updates come from a separate mirror, if one is configured. Backports have none.
        let security = if suite.ends_with("-backports") { None } else { debian_mirror("Debian-Security")? };
        let security = security.map(|mirror| line(mirror, &format!("{suite}-security")));
        fs::write(folder.join("sources.list"), line(main, suite) + &security.unwrap_or_default())?;
        fs::write(folder.join("status"), "")?;
        let archive = Self { folder, architecture };
        output(archive.apt("apt-get").args(["-qq", "update"]))?;
        Ok(archive)
    }

    /// Returns the packages that a package depends on.
    pub(super) fn dependencies(&self, package: &str) -> Result<Vec<String>> {
        let lines = output(self.apt("apt-cache").args(["depends", package]))?;
        Ok(lines
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            .map(str::to_owned)
            .collect())
    }

    /// Downloads these packages without their dependencies and unpacks them in a directory.
    pub(super) fn unpack(&self, packages: &[String], place: &Path) -> Result<()> {
        let downloads = self.folder.join("downloads");
        make_empty(&downloads)?;
        output(self.apt("apt-get").args(["-qq", "download"]).args(packages).current_dir(&downloads))?;
        unpack_all(&downloads, place)
    }

    /// Downloads these packages with their dependencies and unpacks them in a directory.
    pub(super) fn unpack_with_dependencies(&self, packages: &[&str], place: &Path) -> Result<()> {
        let downloads = self.folder.join("cache/archives");
        let mut install = self.apt("apt-get");
        install.args(["-qq", "--yes", "--no-install-recommends", "--download-only", "install"]);
        output(install.args(packages))?;
        unpack_all(&downloads, place)
    }

    /// Returns an apt command that sees only this suite.
    fn apt(&self, program: &str) -> Command {
        let nothing = PathBuf::from("/dev/null");
        let places = [
            ("Dir::Etc::sourcelist", self.folder.join("sources.list")),
            ("Dir::Etc::sourceparts", nothing.clone()),
            ("Dir::Etc::preferences", nothing.clone()),
            ("Dir::Etc::preferencesparts", nothing),
            ("Dir::State::status", self.folder.join("status")),
            ("Dir::State::lists", self.folder.join("lists")),
            ("Dir::Cache", self.folder.join("cache")),
        ];
        let mut command = Command::new(program);
        for (option, path) in places {
            command.arg("-o").arg(format!("{option}={}", path.display()));
        }
        for option in ["APT::Architecture", "APT::Architectures"] {
            command.arg("-o").arg(format!("{option}={}", self.architecture.name));
        }
        // Run as the current user, and fail if the archive is unreachable.
        for option in [
            "APT::Sandbox::User=root",
            "APT::Default-Release=",
            "APT::Update::Error-Mode=any",
            "Acquire::Languages=none",
            "Acquire::Retries=3",
        ] {
            command.args(["-o", option]);
        }
        command.env("LC_ALL", "C");
        command
    }
}

/// Unpacks the packages in `downloads` and removes that directory.
fn unpack_all(downloads: &Path, place: &Path) -> Result<()> {
    for file in fs::read_dir(downloads)?.flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|extension| extension == "deb") {
            output(Command::new("dpkg-deb").arg("-x").arg(file).arg(place))?;
        }
    }
    Ok(fs::remove_dir_all(downloads)?)
}

/// Returns the mirror from which this machine gets Debian packages with this label.
pub(crate) fn debian_mirror(label: &str) -> Result<Option<String>> {
    let format = ["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Origin: Debian"];
    let targets = output(Command::new("apt-get").args(format))?;
    let found = targets.lines().filter_map(|line| line.split_once(' ')).find(|(found, _)| *found == label);
    Ok(found.map(|(_, mirror)| mirror.to_owned()))
}
