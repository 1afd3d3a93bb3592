//! `biolat`, the terminal tool: shows the block I/O of a host. The figures come from a daemon, a saved history, or a probe of its
//! own.

#![deny(unsafe_code)]

mod bimodal;
mod breakdown;
mod claims;
pub mod cli;
mod findings;
mod json;
mod now;
mod open;
mod options;
mod output;
mod past;
mod past_time;
mod process_figures;
mod processes;
mod progress;
mod saved;
mod sizes;
mod slow;
mod slow_line;
mod source;
mod stop;
mod stream;
#[cfg(test)]
mod tests;
mod text;
mod top;
mod view;
mod window;
mod workloads;

use std::{process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use biolat_client::{MAX_OUTAGE, Target};
use biolat_daemon::{check, option_values::EXIT_USAGE};
use biolat_model::interval;
use biolat_system::{log_lines, rights, runtime};
use log::LevelFilter;

use cli::{
    AtCommand, Cli, Command, CpusCommand, HistCommand, OpenCommand, PastOptions, ProcessesCommand,
    SinceCommand, SlowCommand, TableCommand, TopCommand, WorstCommand,
};
use options::{CommonOptions, FileOption, HistogramOptions, RangeOptions, WindowOptions};
use past::PastCommand;
use source::{Needs, Source, SourceDocument, is_daemon_here, without_daemon};
use stop::StopSignals;
use view::{Table, View};

/// Default length of a window.
const WINDOW_OF_TOP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(5);

/// How often slow I/Os are read.
const WINDOW_OF_SLOW: Duration = Duration::from_secs(1);

/// Runs a command until it completes or is interrupted.
pub fn run(cli: Cli) -> Result<ExitCode> {
    let Cli { command, mut common, length, .. } = cli;
    if length.is_some() && command.is_some() {
        return Ok(usage_error("--for before a command has no effect: give the length after it"));
    }
    if let Some(Command::Check(mut options)) = command {
        if common.source.host.is_some() {
            return Ok(usage_error(
                "biolat check only checks the host it runs on: run it there instead of using --host",
            ));
        }
        options.json |= common.json;
        return check::run(*options);
    }
    if let Some(Command::Processes(options)) = &command
        && (common.source.host.is_some() || options.common.source.host.is_some())
    {
        return Ok(usage_error(
            "biolat processes only measures the host it runs on: run it there instead of using --host",
        ));
    }
    if common.source.host.is_some() && command.as_ref().is_some_and(Command::reads_file) {
        return Ok(usage_error("--host and --file exclude each other: a file needs no daemon"));
    }
    common.source = match common.source.or_environment() {
        Ok(source) => source,
        Err(why) => return Ok(usage_error(&why)),
    };
    // The collector's log lines about devices are part of the output.
    log::set_max_level(LevelFilter::Error);
    let _ = rights::raise();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime::block_on(&runtime, dispatch(command, common, length.unwrap_or(WINDOW)));
    // A failing drive can block a thread forever, so do not wait for it.
    runtime.shutdown_background();
    outcome
}

fn usage_error(what: &str) -> ExitCode {
    log::error!("{what} (see --help)");
    EXIT_USAGE.into()
}

async fn dispatch(command: Option<Command>, before: CommonOptions, length: Duration) -> Result<ExitCode> {
    match command {
        None => now::run(&before, length).await,
        Some(Command::Hist(HistCommand { windows, histogram, range, file, common })) => {
            let common = common.or(&before);
            windows_of(View::of_histograms(&histogram, &common), windows, range, file, &common).await
        }
        Some(Command::Sizes(command)) => table(Table::Sizes, command, &before).await,
        Some(Command::Who(command)) => table(Table::Who, command, &before).await,
        Some(Command::Cpus(CpusCommand { windows, common })) => {
            let common = common.or(&before);
            let view = View::of_table(Table::Cpus, false, &common);
            live(view, windows, &common).await
        }
        Some(Command::Processes(command)) => {
            let command = ProcessesCommand { common: command.common.or(&before), ..command };
            processes::run(command, StopSignals::listen()?).await
        }
        Some(Command::Slow(SlowCommand { at_least, milliseconds, common })) => {
            let command = SlowCommand { at_least, milliseconds, common: common.or(&before) };
            let mut stop = StopSignals::listen()?;
            let needs = Needs { window: WINDOW_OF_SLOW, slow: Some(at_least.unwrap_or(interval::SLOW)) };
            match open_source(&command.common, needs, MAX_OUTAGE, &mut stop).await? {
                Some(source) => slow::run(source, &command, stop).await,
                None => Ok(ExitCode::SUCCESS),
            }
        }
        Some(Command::Top(command)) => {
            top(TopCommand { common: command.common.or(&before), ..command }).await
        }
        Some(Command::At(AtCommand { at, length, shown })) => {
            let range = RangeOptions { at: Some(at), length: Some(length), ..RangeOptions::default() };
            histograms_of(range, shown, &before).await
        }
        Some(Command::Since(SinceCommand { since, until, shown })) => {
            let range = RangeOptions { since: Some(since), until, ..RangeOptions::default() };
            histograms_of(range, shown, &before).await
        }
        Some(Command::Worst(WorstCommand { range, milliseconds, file, common })) => {
            let common = common.or(&before);
            let histogram = HistogramOptions { milliseconds, ..HistogramOptions::default() };
            past(PastCommand {
                view: View::of_histograms(&histogram, &common),
                range,
                every: None,
                is_worst: true,
                file: file.file.as_deref(),
                common: &common,
            })
            .await
        }
        Some(Command::Save(mut command)) => {
            command.common = command.common.or(&before);
            let mut stop = StopSignals::listen()?;
            tokio::select! {
                saved = past::save(&command) => saved,
                () = stop.received() => Ok(ExitCode::SUCCESS),
            }
        }
        Some(Command::Open(command)) => {
            open::run(&OpenCommand { json: command.json || before.json, ..command }).await
        }
        Some(Command::Check(options)) => check::run(*options),
    }
}

async fn table(table: Table, command: TableCommand, before: &CommonOptions) -> Result<ExitCode> {
    let TableCommand { windows, milliseconds, range, file, common } = command;
    let common = common.or(before);
    windows_of(View::of_table(table, milliseconds, &common), windows, range, file, &common).await
}

/// Shows live windows or, if a file or a time is given, past windows.
async fn windows_of(
    view: View,
    windows: WindowOptions,
    range: RangeOptions,
    file: FileOption,
    common: &CommonOptions,
) -> Result<ExitCode> {
    if !range.is_given() && file.file.is_none() {
        return match range.length {
            None => live(view, windows, common).await,
            Some(_) if windows.interval.is_some() => {
                Ok(usage_error("--for measures a single window: leave out --for, or INTERVAL and COUNT"))
            }
            length => live(view, WindowOptions { interval: length, count: Some(1), ..windows }, common).await,
        };
    }
    if windows.count.is_some() || windows.timestamp {
        return Ok(usage_error(
            "windows of the past are not limited in number and always show their time: leave out COUNT and -T",
        ));
    }
    let file = file.file.as_deref();
    past(PastCommand { view, range, every: windows.interval, is_worst: false, file, common }).await
}

/// Shows a past time range.
async fn histograms_of(
    range: RangeOptions,
    PastOptions { every, histogram, file, common }: PastOptions,
    before: &CommonOptions,
) -> Result<ExitCode> {
    let common = common.or(before);
    let view = View::of_histograms(&histogram, &common);
    past(PastCommand { view, range, every, is_worst: false, file: file.file.as_deref(), common: &common })
        .await
}

async fn live(view: View, windows: WindowOptions, common: &CommonOptions) -> Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    let needs = Needs { window: windows.interval.unwrap_or(WINDOW), slow: None };
    let view = view.with_timestamp(windows.timestamp);
    match open_source(common, needs, MAX_OUTAGE, &mut stop).await? {
        Some(source) => stream::run(source, view, windows, !common.devices.devices.is_empty(), stop).await,
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn top(command: TopCommand) -> Result<ExitCode> {
    if command.common.json {
        let interval = Some(command.interval.unwrap_or(WINDOW_OF_TOP));
        let windows = WindowOptions { interval, count: command.count, timestamp: false };
        let devices = HistogramOptions { by_device: true, ..HistogramOptions::default() };
        return live(View::of_histograms(&devices, &command.common), windows, &command.common).await;
    }
    if !top::has_terminal() {
        return Ok(usage_error(
            "biolat top needs a terminal as standard input and output: biolat top -j, biolat hist and biolat who write to \
             files and pipes",
        ));
    }
    let mut stop = StopSignals::listen()?;
    let needs = Needs { window: command.interval.unwrap_or(WINDOW_OF_TOP), slow: None };
    // No limit on an outage: until the user quits, the table shows that the daemon is unreachable and for how long.
    match open_source(&command.common, needs, Duration::MAX, &mut stop).await? {
        Some(source) => top::run(source, &command).await,
        None => Ok(ExitCode::SUCCESS),
    }
}

async fn past(command: PastCommand<'_>) -> Result<ExitCode> {
    let mut stop = StopSignals::listen()?;
    tokio::select! {
        shown = past::run(command) => shown,
        () = stop.received() => Ok(ExitCode::SUCCESS),
    }
}

/// Connects to the daemon given by `--host`. Without one, attaches a probe on this host or, if the privileges for that are
/// missing, connects to this host's daemon. `None` if a signal came first: a daemon can be slow to answer, and a failing drive
/// can block the start.
async fn open_source<T: SourceDocument>(
    options: &CommonOptions,
    needs: Needs,
    max_outage: Duration,
    stop: &mut StopSignals,
) -> Result<Option<Source<T>>> {
    let opened = async {
        if let Some(target) = &options.source.host {
            return Source::open_remote(target, options, needs, max_outage).await;
        }
        let error = match Source::open_own(options, needs).await {
            Err(error) if is_daemon_here().await => error,
            Err(error) => bail!("{}", without_daemon(&error)),
            opened => return opened,
        };
        log_lines::write_text(&format!(
            "cannot measure with a probe of its own ({error:#}); asking biolat-daemon on this host\n"
        ));
        Source::open_remote(&Target::here(), options, needs, max_outage).await
    };
    tokio::select! {
        opened = opened => opened.map(Some),
        () = stop.received() => Ok(None),
    }
}

/// The output of `biolat sizes -j`, `cpus -j` and `who -j` for two snapshots.
#[cfg(test)]
fn json_line(before: &biolat_model::snapshot::Snapshot, after: &biolat_model::snapshot::Snapshot) -> String {
    let window = window::Window::between(before, after);
    json::line(&window, &after.host, &everything(), None).unwrap()
}

#[cfg(test)]
fn everything() -> breakdown::Breakdown {
    breakdown::Breakdown {
        by: Some(options::By::Device),
        by_op: true,
        phases: biolat_common::series::Phase::ALL.to_vec(),
        sizes: true,
        cpus: Some(biolat_system::cpus::CpuNodes::default()),
        who: true,
    }
}
