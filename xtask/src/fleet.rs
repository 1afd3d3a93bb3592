//! `cargo xtask fleet`: a synthetic fleet and a real Prometheus, in `biolat-daemon/benches/fleet`.

use anyhow::{Result, bail};

use crate::{
    host::{Requirement, tool},
    process::run,
    static_build::{Architecture, static_cargo},
};

/// Prometheus 3.8 or later.
const PROMETHEUS: Requirement = Requirement::Tool("bin/prometheus");

pub(crate) fn fleet(flags: &[String]) -> Result<()> {
    let does_without = flags.first().is_some_and(|command| command == "weeks");
    if !does_without && let Some(missing) = PROMETHEUS.missing() {
        bail!("{missing}");
    }
    let mut command = static_cargo("bench", Architecture::of_host()?)?;
    command.args(["--quiet", "--bench", "benches", "--", "fleet"]);
    run(command.args(flags).env("BIOLAT_TEST_PROMETHEUS", tool("bin/prometheus")))
}
