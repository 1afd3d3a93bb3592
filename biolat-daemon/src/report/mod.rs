//! `biolat-daemon report`: latencies for the person at the terminal.

pub mod histogram;
pub mod options;
pub mod remote;
#[cfg(test)]
mod samples;
pub mod source;
mod top;
pub mod units;
pub mod window;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use log::LevelFilter;

pub use options::Options;
use source::Source;

use crate::rights;

/// How long a window is if that was not said.
const WINDOW_OF_TOP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// Reports until it is done or interrupted.
pub fn run(options: Options) -> Result<ExitCode> {
    // What the daemon logs of devices stands in what is shown.
    log::set_max_level(LevelFilter::Error);
    let _ = rights::take_up();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(report(&options));
    // Not to wait for what a sick drive may hold up for ever.
    runtime.shutdown_background();
    outcome
}

async fn report(options: &Options) -> Result<ExitCode> {
    let window = options.interval.unwrap_or(if options.top { WINDOW_OF_TOP } else { WINDOW });
    let source = Source::open(options, window).await?;
    if options.top {
        return top::run(source, options).await;
    }
    Ok(ExitCode::SUCCESS)
}
