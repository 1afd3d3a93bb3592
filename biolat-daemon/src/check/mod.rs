//! `biolat-daemon check`: what works here, what does not, and what to do about it.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// Options of `check`.
#[derive(Args, Debug)]
pub struct Options {}

/// Checks, and says what it found.
pub fn run(_options: Options) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
