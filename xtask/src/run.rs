//! `cargo xtask run`: the daemon, for a look.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::{host, process::cargo};

/// Builds for release, as whoever we are; runs as root.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--locked", "--package", "biolat-daemon"]);
    command.args(host::runner()).arg("--").args(flags);
    // Signals go to the daemon itself, as this process becomes cargo and cargo becomes it.
    let error = command.exec();
    Err(anyhow!("cannot run cargo: {error}"))
}
