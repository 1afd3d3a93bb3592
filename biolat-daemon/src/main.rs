//! `biolat-daemon`: parse, run, map errors to exit codes.

use std::process::ExitCode;

use biolat_daemon::{
    config::{Config, Options},
    listen, log_lines, run,
};
use clap::Parser as _;
use tokio::signal::unix::{SignalKind, signal};

const FAILED: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let options = Options::parse();
    log_lines::start(options.log_format);
    let config = match options.check() {
        Ok(config) => config,
        Err(refused) => {
            log::error!("{refused} (see --help)");
            return USAGE.into();
        }
    };
    match serve(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error!("{error:#}");
            FAILED.into()
        }
    }
}

fn serve(config: Config) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // Before anything else, so that a signal never finds its default.
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listeners = listen::bind(&config.listen)?;
        run(config, listeners, async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    })
}
