//! How a command ends: by a signal, or when the reader of a pipe closes it.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use tokio::{
    pin,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::timeout,
};

use super::output::is_closed_pipe;

/// The signals that stop a command. Must be created first, so that their default action never applies.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

/// Time for the last collection and its output after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(4);

impl StopSignals {
    /// Catches the signals from now on.
    pub(super) fn listen() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for a signal.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Runs `show` until it completes. A signal is passed on to it, so that it can finish in time. A closed pipe is not an error.
pub(super) async fn show_until_stopped<F: Future<Output = Result<()>>>(
    mut signals: StopSignals,
    show: impl FnOnce(watch::Receiver<bool>) -> F,
) -> Result<ExitCode> {
    let (stopping, stopped) = watch::channel(false);
    let shown = show(stopped);
    pin!(shown);
    let outcome = tokio::select! {
        outcome = &mut shown => outcome,
        () = signals.received() => {
            stopping.send_replace(true);
            timeout(END_TIMEOUT, shown).await.unwrap_or(Ok(()))
        }
    };
    match outcome {
        Err(error) if is_closed_pipe(&error) => Ok(ExitCode::SUCCESS),
        outcome => outcome.map(|()| ExitCode::SUCCESS),
    }
}
