//! What each bench is as a command: the options that all have, and how it ends.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

/// Flattened into each bench's own.
#[derive(clap::Args)]
pub(crate) struct Usual {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail unless the figures are sane: for a machine that has other things to do
    #[arg(long)]
    pub(crate) check: bool,
    /// Cargo says that it is one.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Runs a bench with the options that it is given.
pub(crate) fn main<Options: Parser>(bench: impl FnOnce(&Options) -> Result<()>) -> ExitCode {
    match bench(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
