//! `biolat open`: the page and the API of a saved history, on loopback.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::cli::OpenCommand;

pub(super) async fn run(_: &OpenCommand) -> Result<ExitCode> {
    bail!("not yet")
}
