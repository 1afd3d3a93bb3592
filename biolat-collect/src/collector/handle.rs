//! A running collector, from the side of the thread that uses its snapshots.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result};
use biolat_model::{device::Selection, snapshot::Snapshot};
use biolat_system::{c_library, host::Host, runtime::no_thread};
use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout},
};

use super::{
    Collector, Kept, origin,
    thread::{CollectorCommand, run},
};
use crate::{device::uevent::Uevents, scrapes::Scrapes};

/// How long the last collection may take before the process ends without it.
const LAST_COLLECTION_TIMEOUT: Duration = Duration::from_millis(500);

/// What a collector starts with.
#[derive(Debug)]
pub struct Settings {
    pub host: Host,
    /// Which devices are shown.
    pub selection: Selection,
    pub probe: biolat_probe::Options,
    /// Time between two collections.
    pub interval: Duration,
    /// Whether the collector's thread filters its system calls.
    pub seccomp: bool,
    /// What the last daemon has kept, and where this one keeps it for the next.
    pub kept: Option<Kept>,
}

/// A running collector. It ends when this and the task that follows uevents are dropped.
pub struct Handle {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    commands: SyncSender<CollectorCommand>,
    scrapes: Scrapes,
}

impl Handle {
    /// Attaches the probe and starts to collect, in a thread that drops its privileges. Returns when the probe is attached.
    ///
    /// Every socket that the collector needs is opened here, as afterwards the thread may open none.
    pub async fn start(settings: Settings) -> Result<Self> {
        let uevents = Uevents::subscribe();
        let (sender, snapshots) = watch::channel(None);
        // One command may wait: a second rescan would find nothing new.
        let (commands, receiver) = sync_channel(1);
        let (attached, outcome) = oneshot::channel();
        let Settings { host, selection, probe, interval, seccomp, kept } = settings;
        let host = Host { node_name: Some(host.name()), ..host };
        let scrapes = Scrapes::default();
        let counted = scrapes.clone();
        let attach = move || -> Result<Collector> {
            let mut collector = origin::begin(host, selection, probe, kept)?;
            // The loader is the larger part of it.
            c_library::unmap_code();
            collector.workloads.scrapes = counted;
            collector.drop_privileges(seccomp)?;
            Ok(collector)
        };
        thread::Builder::new()
            .name("collect".to_owned())
            .spawn(move || match attach() {
                Ok(collector) => {
                    let _ = attached.send(Ok(()));
                    run(collector, interval, &receiver, &sender);
                }
                Err(error) => drop(attached.send(Err(error))),
            })
            .map_err(no_thread("the collector's thread"))?;
        outcome.await.context("the collector's thread ended while it attached the probe")??;
        tokio::spawn(follow_uevents(uevents, commands.clone()));
        Ok(Self { snapshots, commands, scrapes })
    }

    /// Snapshots as they are made; `None` before the first. The channel closes when the collector has ended.
    pub fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// Counted by the server.
    pub fn scrapes(&self) -> Scrapes {
        self.scrapes.clone()
    }

    /// Collects a last time and ends the collector. Gives up after [`LAST_COLLECTION_TIMEOUT`].
    pub async fn collect_and_stop(&self) {
        let mut snapshots = self.snapshots();
        let ended = async {
            while let Err(TrySendError::Full(_)) = self.commands.try_send(CollectorCommand::Stop) {
                sleep(Duration::from_millis(10)).await;
            }
            while snapshots.changed().await.is_ok() {}
        };
        if timeout(LAST_COLLECTION_TIMEOUT, ended).await.is_err() {
            log::warn!("the last collection took longer than {LAST_COLLECTION_TIMEOUT:?}: ending without it");
        }
    }
}

/// Makes the collector scan the devices whenever a disk appears or disappears.
async fn follow_uevents(uevents: io::Result<Uevents>, commands: SyncSender<CollectorCommand>) {
    match uevents {
        Ok(uevents) => loop {
            if let Err(error) = uevents.next().await {
                log::warn!("cannot read uevents any more: {error}; scanning devices every 30 s instead");
                return;
            }
            // If the channel is full, a rescan is pending anyway.
            let _ = commands.try_send(CollectorCommand::Rescan);
        },
        Err(error) => log::warn!("cannot subscribe to uevents: {error}; scanning devices every 30 s instead"),
    }
}
