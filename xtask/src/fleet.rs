//! `cargo xtask fleet`: builds and runs `biolat-fleet`, a synthetic fleet scraped by a real Prometheus.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    host::{Requirement, tool},
    process::run,
    static_build::{Architecture, static_cargo},
};

/// Prometheus 3.8 or later.
const PROMETHEUS: Requirement = Requirement::Tool("bin/prometheus");

pub(crate) fn fleet(flags: &[String]) -> Result<()> {
    let needs_prometheus = flags.first().is_none_or(|command| command != "weeks");
    if needs_prometheus && let Some(missing) = PROMETHEUS.missing() {
        bail!("{missing}");
    }
    let mut command = cargo("run")?;
    run(command.arg("--").args(flags).env("BIOLAT_TEST_PROMETHEUS", tool("bin/prometheus")))
}

/// Builds `biolat-fleet` without running it.
pub(crate) fn build() -> Result<()> {
    run(&mut cargo("build")?)
}

fn cargo(verb: &str) -> Result<Command> {
    let mut command = static_cargo(verb, "biolat-fleet", Architecture::of_host()?)?;
    command.args(["--quiet", "--release"]);
    Ok(command)
}
