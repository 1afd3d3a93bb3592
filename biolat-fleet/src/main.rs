//! Program run by `cargo xtask fleet`: handles signals and sets the exit status.

use std::process::ExitCode;

use biolat_fleet::Options;
use clap::Parser as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};

fn main() -> ExitCode {
    run(Options::parse()).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(options: Options) -> anyhow::Result<ExitCode> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        let [mut interrupt, mut terminate] =
            [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
        // A signal drops the run, including its processes and directories.
        tokio::select! {
            result = options.run() => result.map(|()| ExitCode::SUCCESS),
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}
