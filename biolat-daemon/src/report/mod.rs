//! `biolat-daemon report`: latencies for the person at the terminal.

pub mod histogram;
#[cfg(test)]
mod samples;
pub mod window;

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

/// Options of `report`.
#[derive(Args, Debug)]
pub struct Options {}

/// Reports until it is done or interrupted.
pub fn run(_options: Options) -> Result<ExitCode> {
    Ok(ExitCode::SUCCESS)
}
