//! `cargo xtask run`: runs the daemon from the working tree.

use std::os::unix::process::CommandExt as _;

use anyhow::{Result, anyhow};

use crate::{host, process::cargo};

/// Builds in release mode as the current user, and runs the daemon as root.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    let mut command = cargo(&["run", "--release", "--locked", "--package", "biolat-daemon"]);
    command.args(host::runner()).arg("--").args(flags);
    // Cargo replaces this process, and the daemon replaces cargo, so signals reach the daemon directly.
    let error = command.exec();
    Err(anyhow!("cannot run cargo: {error}"))
}
