//! `cargo xtask run`: the daemon, for a look.

use std::{os::unix::process::CommandExt as _, process::Command};

use anyhow::{Result, anyhow};

use crate::{
    machine,
    process::{cargo, root, run as run_command},
};

/// Builds for release, as whoever we are; runs as root.
pub(crate) fn run(flags: &[String]) -> Result<()> {
    run_command(&mut cargo(&["build", "--release", "--package", "biolat-daemon"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let daemon = target.join("release/biolat-daemon");
    let mut command = if machine::is_root() {
        Command::new(&daemon)
    } else {
        let mut sudo = Command::new("sudo");
        sudo.arg("--preserve-env").arg(&daemon);
        sudo
    };
    // Signals go to the daemon itself, as this process becomes it.
    let error = command.args(flags).exec();
    Err(anyhow!("cannot run {}: {error}", command.get_program().display()))
}
