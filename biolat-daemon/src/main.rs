//! Entry point of `biolat-daemon`: parses options, runs the command and maps errors to exit codes.

#![forbid(unsafe_code)]

use std::{ffi::OsString, process::ExitCode, time::Duration};

use biolat_collect::pins;
use biolat_daemon::{
    check,
    cli::{Cli, Command},
    config::Config,
    daemon, listen,
    option_values::{EXIT_USAGE, parse_command_line},
    web_config::WebConfigError,
};
use biolat_system::{
    c_library, log_lines,
    passed_fds::{self, PassedFds},
    process, rights, runtime,
};
use tokio::signal::unix::{SignalKind, signal};

const EXIT_FAILURE: u8 = 1;

/// Maximum number of threads that encode responses, verify passwords and read the web config. A hung drive can block one of them.
const MAX_BLOCKING_THREADS: usize = 8;

fn main() -> ExitCode {
    c_library::share_one_heap();
    c_library::ignore_file_size_signal();
    let cli: Cli = parse_command_line();
    log_lines::start(cli.log_format, cli.log_level);
    process::raise_file_limit();
    let outcome = match cli.command {
        None => return run_daemon(cli),
        Some(Command::Check(options)) => check::run(*options),
        Some(Command::Report { options }) => {
            log::error!("{}", report_replacement(&options));
            return EXIT_USAGE.into();
        }
        Some(Command::Unpin { folder }) => pins::unpin(&folder).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        log::error!("{error:#}");
        EXIT_FAILURE.into()
    })
}

fn run_daemon(cli: Cli) -> ExitCode {
    let config = match cli.validate() {
        Ok(config) => config,
        Err(error) => {
            log::error!("{error} (see --help)");
            return EXIT_USAGE.into();
        }
    };
    if let Err(error) = rights::raise() {
        log::warn!("cannot raise the permitted capabilities: {error}");
    }
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            if error.is::<WebConfigError>() { EXIT_USAGE.into() } else { EXIT_FAILURE.into() }
        }
    }
}

/// An error message that names the `biolat` command that replaced `biolat-daemon report` with these options.
fn report_replacement(options: &[OsString]) -> String {
    const COMMANDS: [(&str, &str); 10] = [
        ("--worst", "worst"),
        ("--at", "at TIME"),
        ("--since", "since TIME"),
        ("--save", "save FILE"),
        ("--load", "since -26h --file FILE"),
        ("--cpus", "cpus"),
        ("--top", "top"),
        ("--who", "who"),
        ("--sizes", "sizes"),
        ("--slow", "slow"),
    ];
    let is_given = |option: &str| options.iter().any(|given| given.to_string_lossy().starts_with(option));
    let command = COMMANDS.iter().find(|(option, _)| is_given(option)).map_or("hist", |(_, command)| command);
    let host = if is_given("--from") { " --host HOST" } else { "" };
    format!("biolat-daemon report has been replaced: run biolat {command}{host} (see biolat --help)")
}

fn serve(config: Config) -> anyhow::Result<()> {
    let PassedFds { sockets, kept } = passed_fds::take()?;
    let listeners = listen::open(&config.listen, sockets)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Requests would fail without a blocking thread, so the first one is started before the daemon serves and never exits.
        .thread_keep_alive(Duration::MAX)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        // These threads use only descriptors that they open themselves.
        .on_thread_start(rights::isolate_thread)
        .build()?;
    let result = runtime::block_on(&runtime, async {
        // Before anything else, so that no signal takes its default action.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        // By default, SIGHUP would terminate the process. It has nothing to reload: the web config is watched for changes.
        let _hangup = signal(SignalKind::hangup())?;
        daemon::run(config, listeners, kept, async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    });
    // Do not wait for the blocking threads: a hung drive can block one forever. Do not shut them down either: the last one
    // would drop the runtime, and the runtime's descriptors are not in that thread's descriptor table.
    std::mem::forget(runtime);
    result
}
