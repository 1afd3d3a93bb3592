//! Builds the Debian package with cargo-deb. `biolat-daemon/Cargo.toml` lists the package's files.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::release_info::ReleaseInfo;
use crate::{
    cargo_deb,
    folder::make_empty,
    process::{root, run},
    static_build::{self, Architecture, TOOL, static_cargo},
};

/// Packages the built binary into a directory and returns the package's path.
pub(super) fn write(architecture: Architecture, info: &ReleaseInfo, folder: &Path) -> Result<PathBuf> {
    write_documents(architecture, info)?;
    let path = folder.join(format!("biolat_{}_{}.deb", info.version, architecture.name));
    let mut command = Command::new(cargo_deb::find()?);
    command.current_dir(root());
    command.args(["--package", "biolat-daemon", "--no-build", "--no-strip", "--locked", "--quiet"]);
    command.args(["--target", architecture.target, "--output"]).arg(&path);
    command
        .env("CARGO_TARGET_DIR", static_build::target_dir(architecture))
        .env("SOURCE_DATE_EPOCH", info.epoch.to_string());
    run(&mut command)?;
    Ok(path)
}

/// Generates the man pages, shell completions and changelog next to the binary, where cargo-deb looks for them.
fn write_documents(architecture: Architecture, info: &ReleaseInfo) -> Result<()> {
    let folder = static_build::folder(architecture).join("documents");
    make_empty(&folder)?;
    let host = Architecture::of_host()?;
    // Unoptimized, because it runs only for a moment.
    let mut command = static_cargo("rustc", TOOL.package, host)?;
    command.args(["--release", "--quiet", "--example", "documents"]);
    command.args(["--", "-Copt-level=0", "-Ccodegen-units=16"]);
    run(&mut command)?;
    let mut command = Command::new(static_build::folder(host).join("examples/documents"));
    run(command.arg(info.date("%Y-%m-%d")?).arg(&folder))?;
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
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|section| section == "1" || section == "8") {
            compress.arg(path);
        }
    }
    run(&mut compress)
}
