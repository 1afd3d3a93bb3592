//! The command line of a benchmark: the shared options and the exit status.

use std::{ffi::OsString, process::ExitCode};

use anyhow::Result;
use clap::Parser;

/// Options of every benchmark.
#[derive(clap::Args)]
pub(crate) struct Usual {
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Fail if the results are implausible; the bounds are wide enough for machines that are not idle
    #[arg(long)]
    pub(crate) check: bool,
    /// Passed by cargo bench.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Parses the options and runs a benchmark.
pub(crate) fn main<Options: Parser>(
    arguments: &[OsString],
    bench: impl FnOnce(&Options) -> Result<()>,
) -> ExitCode {
    match bench(&Options::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
