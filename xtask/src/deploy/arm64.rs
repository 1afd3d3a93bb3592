//! What is made for another architecture: that it starts, under emulation. Its probe cannot be loaded there.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::{host::Requirement, process::output};

const EMULATOR: &str = "qemu-aarch64-static";

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::CargoDeb,
    Requirement::ProbeCompiler,
    Requirement::Program("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"),
    Requirement::Program(EMULATOR, "qemu-user-static"),
    Requirement::Program("dpkg-deb", "dpkg"),
];

pub(super) fn check() -> Result<()> {
    let release = super::release()?;
    let arm64 = release.artifacts.iter().find(|each| each.architecture.name == "arm64");
    let arm64 = arm64.context("no arm64 was made: see above")?;
    let here = output(Command::new(&release.for_host()?.binary).arg("--version"))?;
    let there = output(Command::new(EMULATOR).arg(&arm64.binary).arg("--version"))?;
    if here != there {
        bail!("biolat-daemon --version says {there:?} on arm64, and {here:?} here");
    }
    output(Command::new(EMULATOR).arg(&arm64.binary).arg("--help"))?;
    // It gets as far as its rights, or the probe: the emulator knows no bpf(2).
    let ended = Command::new(EMULATOR).arg(&arm64.binary).args(["--listen", "127.0.0.1:0"]).output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.code() != Some(1) || !said.lines().last().is_some_and(|line| line.starts_with("error: "))
    {
        bail!("started under emulation it ends with {}, and says: {said}", ended.status);
    }
    let control = output(Command::new("dpkg-deb").arg("--field").arg(arm64.package()?).arg("Architecture"))?;
    if control.trim() != "arm64" {
        bail!("{} is a package for {}", arm64.package()?.display(), control.trim());
    }
    Ok(())
}
