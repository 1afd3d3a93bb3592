//! `biolat-daemon report`: latencies for the person at the terminal, measured by a probe of its own or read from a daemon.

#![deny(unsafe_code)]

mod bimodal;
mod breakdown;
mod findings;
mod intervals;
mod json;
pub mod option_values;
mod options;
mod output;
mod past;
mod past_time;
mod remote;
mod saved;
pub mod shared_options;
mod sizes;
mod slow;
mod source;
mod stop;
mod stream;
mod target;
pub mod terminal;
mod text;
mod top;
mod update;
mod window;
mod workloads;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use log::LevelFilter;
use tokio::{net::TcpStream, time::timeout};

use biolat_system::{rights, runtime};
pub use options::ReportOptions;

use crate::option_values::EXIT_USAGE;
use past::PastRange;
use remote::Document;
use source::Source;
use stop::StopSignals;
use target::PORT;

/// The default length of a window.
const WINDOW_OF_TOP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// How often slow I/Os are read.
const WINDOW_OF_SLOW: Duration = Duration::from_secs(1);

/// How long to try to connect to a daemon on this host.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(300);

/// Reports until it is done or interrupted.
pub fn run(options: &ReportOptions) -> Result<ExitCode> {
    // What the collector logs of devices is part of the report.
    log::set_max_level(LevelFilter::Error);
    let _ = rights::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime::block_on(&runtime, report(options));
    // A failing drive may block a thread forever: do not wait for it.
    runtime.shutdown_background();
    outcome
}

async fn report(options: &ReportOptions) -> Result<ExitCode> {
    if options.top && !top::has_terminal() {
        log::error!("--top needs a terminal as standard input and output: run it on one, or leave it out");
        return Ok(EXIT_USAGE.into());
    }
    let mut stop = StopSignals::listen()?;
    if PastRange::is_given(options) {
        return tokio::select! {
            outcome = past::run(options) => outcome,
            () = stop.received() => Ok(ExitCode::SUCCESS),
        };
    }
    if options.slow.is_some() {
        return match open(options, WINDOW_OF_SLOW, &mut stop).await? {
            Some(source) => slow::run(source, options, stop).await,
            None => Ok(ExitCode::SUCCESS),
        };
    }
    let window = options.interval.unwrap_or(if options.top { WINDOW_OF_TOP } else { WINDOW });
    match open(options, window, &mut stop).await? {
        Some(source) if options.top => top::run(source, options).await,
        Some(source) => stream::run(source, options, stop).await,
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Opens the source. None if a signal came first: a daemon may take long to answer, and a failing drive may block the start.
async fn open<T: Document>(
    options: &ReportOptions,
    window: Duration,
    stop: &mut StopSignals,
) -> Result<Option<Source<T>>> {
    let opened = tokio::select! {
        opened = Source::open(options, window) => opened,
        () = stop.received() => return Ok(None),
    };
    match opened {
        Err(error) if options.from.is_none() && is_daemon_here().await => bail!(
            "{error:#}; or read the daemon that listens on port {PORT} of this host, which needs no privileges: \
             biolat-daemon report --from localhost"
        ),
        source => source.map(Some),
    }
}

/// Whether something listens on the daemon's port.
async fn is_daemon_here() -> bool {
    matches!(timeout(LOCAL_TIMEOUT, TcpStream::connect(("localhost", PORT))).await, Ok(Ok(_)))
}

/// What `report -P` and `report --sizes --cpus --who` print of two snapshots.
#[cfg(test)]
fn text_of(before: &biolat_model::snapshot::Snapshot, after: &biolat_model::snapshot::Snapshot) -> String {
    let terminal = terminal::Terminal { color: false, unicode: true, is_terminal: true };
    let numbers = terminal.numbers(false);
    let window = window::Window::between(before, after);
    let style = text::TextStyle { terminal, width: 80, numbers, fine: true };
    let tables = breakdown::Breakdown { phases: Vec::new(), ..everything() };
    let texts = [every_block(), tables].map(|breakdown| text::window(&window, &breakdown, &style));
    texts.concat() + &findings::findings(&window, numbers).join("\n")
}

/// What `report -j --sizes --cpus --who` prints of two snapshots.
#[cfg(test)]
fn json_line(before: &biolat_model::snapshot::Snapshot, after: &biolat_model::snapshot::Snapshot) -> String {
    let window = window::Window::between(before, after);
    json::line(&window, &after.host, &everything(), None).unwrap()
}

/// What `report --slow` prints of an I/O.
#[cfg(test)]
fn slow_line(io: &biolat_model::snapshot::SlowIo) -> String {
    let terminal = terminal::Terminal { color: false, unicode: true, is_terminal: true };
    slow::line(io, terminal, terminal.numbers(false))
}

#[cfg(test)]
fn every_block() -> breakdown::Breakdown {
    breakdown::Breakdown { sizes: false, cpus: None, who: false, ..everything() }
}

#[cfg(test)]
fn everything() -> breakdown::Breakdown {
    breakdown::Breakdown {
        by_device: true,
        by_op: true,
        phases: biolat_common::series::Phase::ALL.to_vec(),
        sizes: true,
        cpus: Some(biolat_collect::cpus::CpuNodes::default()),
        who: true,
    }
}
