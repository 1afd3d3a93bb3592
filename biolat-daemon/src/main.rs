//! `biolat-daemon`: parse, run, map errors to exit codes.

use std::process::ExitCode;

use biolat_daemon::{
    check,
    config::{Command, Config, Options, USAGE},
    listen, log_lines, report, rights, run,
    web_config::WebConfigError,
};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

const FAILED: u8 = 1;

fn main() -> ExitCode {
    use_one_heap();
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if error.use_stderr() => {
            eprintln!("{}", one_line(&error.to_string()));
            return USAGE.into();
        }
        Err(help_or_version) => help_or_version.exit(),
    };
    log_lines::start(options.log_format);
    raise_file_limit();
    let outcome = match options.command {
        None => return daemon(options),
        Some(Command::Check(options)) => check::run(options),
        Some(Command::Report(options)) => report::run(&options),
    };
    outcome.unwrap_or_else(|error| {
        log::error!("{error:#}");
        FAILED.into()
    })
}

fn daemon(options: Options) -> ExitCode {
    let config = match options.check() {
        Ok(config) => config,
        Err(refused) => {
            log::error!("{refused} (see --help)");
            return USAGE.into();
        }
    };
    if let Err(error) = rights::take_up() {
        log::warn!("cannot take up the capabilities that are permitted: {error}");
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            if error.is::<WebConfigError>() { USAGE.into() } else { FAILED.into() }
        }
    }
}

/// With a heap for each thread, what one of them has freed stays with it: some megabytes after the kernel's types
/// have been read. Two threads do not get into each other's way.
fn use_one_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: before there is another thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Each chunk of series is a file descriptor, and each connection; what the administrator allows is taken.
fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: valid structs; a refusal changes nothing.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// What clap says on several lines, less where to find more.
fn one_line(text: &str) -> String {
    let said = text.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more").next().unwrap_or_default();
    let lines: Vec<_> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("{} (see --help)", lines.join("; "))
}

fn serve(config: Config) -> anyhow::Result<()> {
    let listeners = listen::open(&config.listen)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(async {
        // Before anything else, so that a signal never finds its default.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        run(config, listeners, async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    });
    // Not to wait for what a sick drive may hold up for ever.
    runtime.shutdown_background();
    result
}
