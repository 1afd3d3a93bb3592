//! Measures I/O by process, for `biolat processes`. A thread attaches the programs, reads them, and sends windows or single I/Os.
//! It shares nothing with the collector.

mod ios;
mod monitor;
mod names;
mod regions;

use std::{
    collections::BTreeMap,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use biolat_model::{band_histogram::BandHistogram, device::Selection, name::Name};
use biolat_system::{host::Host, runtime::no_thread};
use tokio::sync::{mpsc, oneshot};

use crate::device::uevent::Uevents;
use monitor::{Command, Monitor};

pub use ios::ProcessIo;
pub use names::Process;

/// Number of events that wait for a slow reader. After that, the thread waits.
const PENDING_EVENTS: usize = 16;

/// What to measure.
#[derive(Debug)]
pub struct Settings {
    pub host: Host,
    /// Devices to measure.
    pub selection: Selection,
    pub output: Output,
    /// Whether to filter system calls in the thread.
    pub seccomp: bool,
}

/// What the thread sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A window at this interval or, without one, a single window when it is stopped.
    Windows(Option<Duration>),
    /// Single I/Os.
    Ios,
}

/// An event from the thread.
#[derive(Debug)]
pub enum Event {
    Window(ProcessWindow),
    Ios(Vec<ProcessIo>),
    /// From now on, one of this many I/Os is sent.
    Sampling(u32),
    /// So many I/Os were not sent, because they completed faster than they could be read.
    Dropped(u64),
    /// A device is not measured.
    NotMeasured(String),
}

/// The I/O of all processes in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessWindow {
    pub ended: SystemTime,
    pub length: Duration,
    /// The models of the measured devices, by name; empty if unknown.
    pub models: BTreeMap<String, String>,
    pub usage: Vec<ProcessUsage>,
    /// Completions that are not in [`usage`](Self::usage), by reason.
    pub lost: BTreeMap<Name, u64>,
}

/// The I/O of a process with one op on one device.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUsage {
    pub process: Process,
    pub device: String,
    pub op: String,
    pub bytes: u64,
    pub errors: u64,
    /// Device latencies; total latencies of I/Os without a dispatch timestamp.
    pub latency: BandHistogram,
}

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
