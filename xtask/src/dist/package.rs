//! Builds the Debian package with cargo-deb. `biolat-daemon/Cargo.toml` lists the package's files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::release_info::ReleaseInfo;
use crate::{
    cargo_deb,
    folder::make_empty,
    process::{root, run},
    static_build::{self, Architecture, PROGRAMS, TOOL, static_cargo},
};

/// Packages the binaries, which are in the order of [`PROGRAMS`], into a directory and returns the package's path.
pub(super) fn write(
    architecture: Architecture,
    info: &ReleaseInfo,
    folder: &Path,
    binaries: &[PathBuf],
) -> Result<PathBuf> {
    // cargo-deb finds what it packages in a target directory. This one is not shared with other builds.
    let target_dir = root().join("target/package").join(architecture.name);
    let release = target_dir.join(architecture.target).join("release");
    make_empty(&target_dir)?;
    fs::create_dir_all(&release)?;
    for (program, binary) in PROGRAMS.into_iter().zip(binaries) {
        fs::copy(binary, release.join(program.name))
            .with_context(|| format!("cannot copy {}", binary.display()))?;
    }
    write_documents(&release.join("documents"), info)?;
    let path = folder.join(format!("biolat_{}_{}.deb", info.version, architecture.name));
    let mut command = Command::new(cargo_deb::find()?);
    command.current_dir(root());
    command.args(["--package", "biolat-daemon", "--no-build", "--no-strip", "--locked", "--quiet"]);
    command.args(["--target", architecture.target, "--output"]).arg(&path);
    command.env("CARGO_TARGET_DIR", &target_dir).env("SOURCE_DATE_EPOCH", info.epoch.to_string());
    run(&mut command)?;
    Ok(path)
}

/// Generates the man pages, shell completions and changelog.
fn write_documents(folder: &Path, info: &ReleaseInfo) -> Result<()> {
    make_empty(folder)?;
    let host = Architecture::of_host()?;
    // Unoptimized, because it runs only for a moment.
    let mut command = static_cargo("rustc", TOOL.package, host)?;
    command.args(["--release", "--quiet", "--example", "documents"]);
    command.args(["--", "-Copt-level=0", "-Ccodegen-units=16"]);
    run(&mut command)?;
    let mut command = Command::new(static_build::folder(host).join("examples/documents"));
    run(command.arg(info.date("%Y-%m-%d")?).arg(folder))?;
    let changelog = format!(
        "biolat ({}) unstable; urgency=medium\n\n  * Built from {}. Changes: CHANGELOG.md in this directory.\n\n \
         -- {}  {}\n",
        info.version,
        info.revision,
        env!("CARGO_PKG_AUTHORS"),
        info.date("%a, %d %b %Y %H:%M:%S +0000")?
    );
    fs::write(folder.join("changelog"), changelog)?;
    let mut compress = Command::new("gzip");
    compress.args(["-9", "--no-name"]).arg(folder.join("changelog"));
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|section| section == "1" || section == "8") {
            compress.arg(path);
        }
    }
    run(&mut compress)
}
