//! `cargo xtask fleet`: builds and runs `biolat-fleet`, a synthetic fleet scraped by a real Prometheus.

use anyhow::{Result, bail};

use crate::{
    host::{Requirement, tool},
    process::{command, run},
    static_build::{self, Architecture, TOOL, static_cargo},
};

/// Prometheus 3.8 or later.
const PROMETHEUS: Requirement = Requirement::Tool("bin/prometheus");

pub(crate) fn fleet(flags: &[String]) -> Result<()> {
    let needs_prometheus = flags.first().is_none_or(|command| command != "weeks");
    if needs_prometheus && let Some(missing) = PROMETHEUS.missing() {
        bail!("{missing}");
    }
    build()?;
    let program = static_build::folder(Architecture::of_host()?).join("biolat-fleet");
    run(command(program, &[]).args(flags).env("BIOLAT_TEST_PROMETHEUS", tool("bin/prometheus")))
}

/// Builds `biolat-fleet` together with a released program: with the same features, they share the build of their dependencies.
pub(crate) fn build() -> Result<()> {
    let mut command = static_cargo("build", "biolat-fleet", Architecture::of_host()?)?;
    run(command.args(["--package", TOOL.package, "--quiet", "--release", "--bins"]))
}
