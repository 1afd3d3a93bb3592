//! Measures I/O by process, for `biolat processes`. A thread attaches the programs, reads them, and sends windows or single I/Os.
//! It shares nothing with the collector.

mod audit;
mod events;
mod ios;
mod monitor;
mod names;
mod regions;

use std::{
    sync::mpsc::{SyncSender, sync_channel},
    thread,
};

use anyhow::{Context as _, Result};
use biolat_system::runtime::no_thread;
use tokio::sync::{mpsc, oneshot};

use crate::device::uevent::Uevents;
use monitor::{Command, Monitor};

pub use events::{Event, Output, ProcessUsage, ProcessWindow, Settings};
pub use ios::ProcessIo;
pub use names::Process;

/// Number of events that wait for a slow reader. After that, the thread waits.
const PENDING_EVENTS: usize = 16;

/// A running measurement. It ends when this is dropped.
pub struct Handle {
    events: mpsc::Receiver<Result<Event>>,
    commands: SyncSender<Command>,
}

impl Handle {
    /// Attaches the programs in a thread that drops its privileges. Returns once they are attached.
    pub async fn start(settings: Settings) -> Result<Self> {
        let uevents = Uevents::subscribe();
        let (sender, events) = mpsc::channel(PENDING_EVENTS);
        // Room for a rescan and a stop.
        let (commands, receiver) = sync_channel(2);
        let (attached, outcome) = oneshot::channel();
        thread::Builder::new()
            .name("processes".to_owned())
            .spawn(move || match Monitor::attach(settings, sender.clone()) {
                Ok(monitor) => {
                    let _ = attached.send(Ok(()));
                    if let Err(error) = monitor.run(&receiver) {
                        let _ = sender.blocking_send(Err(error));
                    }
                }
                Err(error) => drop(attached.send(Err(error))),
            })
            .map_err(no_thread("the thread that measures processes"))?;
        outcome
            .await
            .context("the thread that measures processes ended while it attached the programs")??;
        // Without uevents, the regular scan finds new devices a little later.
        if let Ok(uevents) = uevents {
            let commands = commands.clone();
            tokio::spawn(async move {
                while uevents.next().await.is_ok() {
                    let _ = commands.try_send(Command::Rescan);
                }
            });
        }
        Ok(Self { events, commands })
    }

    /// Returns the next event. `None` after the last. Cancel-safe.
    pub async fn next(&mut self) -> Option<Result<Event>> {
        self.events.recv().await
    }

    /// Stops the measurement. Its last events follow.
    pub fn stop(&self) {
        let _ = self.commands.try_send(Command::Stop);
    }
}
