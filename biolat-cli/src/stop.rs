//! How a command ends: signals, and a pipe that its reader has closed.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use tokio::{
    pin,
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
    time::timeout,
};

use super::output::is_closed_pipe;

/// The signals that stop a command. Created first, so that they never have their default action.
pub(super) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

/// How long the last collection and its output may take after a signal.
const END_TIMEOUT: Duration = Duration::from_secs(4);

impl StopSignals {
    /// Catches them from now on.
    pub(super) fn listen() -> Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for one.
    pub(super) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Shows something until it is done, or until a signal, of which it is notified. A closed pipe is not an error.
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
