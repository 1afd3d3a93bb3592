//! Checks the arm64 artifacts. The daemon starts under user-mode emulation, but cannot load its probe there.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{dist, host::Requirement, process::output};

const EMULATOR: &str = "qemu-aarch64-static";

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::CargoDeb,
    Requirement::ProbeCompiler,
    Requirement::Program("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    Requirement::Program(EMULATOR, "qemu-user-static"),
    Requirement::Program("dpkg-deb", "dpkg"),
];

pub(super) fn check() -> Result<()> {
    let release = dist::release()?;
    let arm64 = release.artifacts.iter().find(|each| each.architecture.name == "arm64");
    let arm64 = arm64.context("no arm64 artifacts were built: see above")?;
    let here = output(Command::new(&release.for_host()?.binaries[0]).arg("--version"))?;
    let there = output(Command::new(EMULATOR).arg(&arm64.binaries[0]).arg("--version"))?;
    if here != there {
        bail!("biolat-daemon --version prints {there:?} on arm64, {here:?} on this machine");
    }
    output(Command::new(EMULATOR).arg(&arm64.binaries[0]).arg("--help"))?;
    // The daemon fails, either for lack of privileges or because it cannot load the probe: the emulator has no bpf(2).
    let ended = Command::new(EMULATOR).arg(&arm64.binaries[0]).args(["--listen", "127.0.0.1:0"]).output()?;
    let printed = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() != Some(1)
        || !printed.lines().last().is_some_and(|line| line.starts_with("error: "))
    {
        bail!("under emulation the daemon exits with {} and prints: {printed}", ended.status);
    }
    let control = output(Command::new("dpkg-deb").arg("--field").arg(arm64.package()?).arg("Architecture"))?;
    if control.trim() != "arm64" {
        bail!("{} is a package for {}, expected arm64", arm64.package()?.display(), control.trim());
    }
    Ok(())
}
