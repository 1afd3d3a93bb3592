//! Starts the collector, in a thread of its own that keeps no right that it does not need.

use std::{
    sync::{Arc, mpsc::Receiver},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tokio::sync::{oneshot, watch};

use super::{Collector, Command, run};
use crate::{
    device::selection::Selection,
    host::Host,
    rights::{self, Thread},
    snapshot::Snapshot,
};

/// What it starts with.
#[derive(Clone, Debug)]
pub struct Start {
    /// Where the host's facts are.
    pub host: Host,
    /// Which devices are shown.
    pub selection: Selection,
    /// Whether the kernel is to measure the probe.
    pub probe_stats: bool,
    /// How often to read.
    pub interval: Duration,
    /// Whether system calls are filtered once the probe is attached.
    pub seccomp: bool,
}

impl Start {
    /// Attaches the probe, and has passes made from then on. Done when the probe is attached.
    pub async fn start(
        self,
        commands: Receiver<Command>,
        snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    ) -> Result<()> {
        let (attached, outcome) = oneshot::channel();
        let interval = self.interval;
        let collector = move || -> Result<Collector> {
            let collector = Collector::attach(self.host, self.selection, self.probe_stats)?;
            rights::give_up(Thread::Collecting, self.seccomp)?;
            Ok(collector)
        };
        thread::Builder::new()
            .name("collect".to_owned())
            .spawn(move || match collector() {
                Ok(collector) => {
                    let _ = attached.send(Ok(()));
                    run(collector, interval, &commands, &snapshots);
                }
                Err(error) => drop(attached.send(Err(error))),
            })
            .context("cannot start the collector's thread")?;
        outcome.await.context("the collector ended before it began")?
    }
}
