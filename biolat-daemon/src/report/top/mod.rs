//! `report --top`: a live table.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::{options::Options, source::Source};

/// Shows the table until it is left.
pub(super) async fn run(_source: Source, _options: &Options) -> Result<ExitCode> {
    bail!("there is no --top yet")
}
