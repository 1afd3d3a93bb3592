//! `biolat-daemon report`: latencies for the person at the terminal.

mod clock;
mod draw;
mod json;
mod modes;
pub mod options;
pub mod remote;
#[cfg(test)]
mod samples;
mod show;
pub mod source;
pub mod terminal;
mod top;
pub mod units;
pub mod verdict;
pub mod view;
pub mod window;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use log::LevelFilter;
use tokio::{net::TcpStream, time::timeout};

pub use options::Options;
use remote::target::PORT;
use show::End;
use source::Source;

use crate::{config::EXIT_USAGE, rights};

/// How long a window is if that was not said.
const WINDOW_OF_TOP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// Who listens here answers within this.
const LOCAL: Duration = Duration::from_millis(300);

/// Reports until it is done or interrupted.
pub fn run(options: &Options) -> Result<ExitCode> {
    // What the daemon logs of devices stands in what is shown.
    log::set_max_level(LevelFilter::Error);
    let _ = rights::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(report(options));
    // Not to wait for what a sick drive may hold up for ever.
    runtime.shutdown_background();
    outcome
}

async fn report(options: &Options) -> Result<ExitCode> {
    if options.top && !top::has_terminal() {
        log::error!("--top takes a terminal, as standard input and output: run it on one, or leave it out");
        return Ok(EXIT_USAGE.into());
    }
    let mut end = End::listen()?;
    let window = options.interval.unwrap_or(if options.top { WINDOW_OF_TOP } else { WINDOW });
    // Who is asked may keep silent for long, and a sick drive for ever.
    let opened = tokio::select! {
        opened = Source::open(options, window) => opened,
        () = end.came() => return Ok(ExitCode::SUCCESS),
    };
    let source = match opened {
        Err(error) if options.from.is_none() && is_one_here().await => bail!(
            "{error:#}; or read what listens on port {PORT} here, which takes no rights: \
             biolat-daemon report --from localhost"
        ),
        source => source?,
    };
    if options.top { top::run(source, options).await } else { show::run(source, options, end).await }
}

/// Whether something listens where a biolat would.
async fn is_one_here() -> bool {
    matches!(timeout(LOCAL, TcpStream::connect(("localhost", PORT))).await, Ok(Ok(_)))
}
