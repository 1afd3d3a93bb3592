//! A handle to a running collector, for the thread that uses its snapshots.

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
    volumes::MeasureVolumes,
};
use crate::{device::uevent::Uevents, scrapes::Scrapes};

/// Time limit for the last collection before the process ends without it.
const LAST_COLLECTION_TIMEOUT: Duration = Duration::from_millis(500);

/// Settings of a collector.
#[derive(Debug)]
pub struct Settings {
    pub host: Host,
    /// Selects the devices to show.
    pub selection: Selection,
    pub probe: biolat_probe::Options,
    pub volumes: MeasureVolumes,
    /// Time between collections.
    pub interval: Duration,
    /// Whether to filter system calls in the collector's thread.
    pub seccomp: bool,
    /// State kept by the previous daemon, and the place to keep it for the next one.
    pub kept: Option<Kept>,
}

/// A running collector. It ends once both this handle and the task that follows uevents are dropped.
pub struct Handle {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    commands: SyncSender<CollectorCommand>,
    scrapes: Scrapes,
}

impl Handle {
    /// Attaches the probe and starts collecting in a thread that drops its privileges. Returns once the probe is attached.
    ///
    /// Opens every socket that the collector needs, because its thread cannot open any once it has dropped its privileges.
    pub async fn start(settings: Settings) -> Result<Self> {
        let uevents = Uevents::subscribe();
        let (sender, snapshots) = watch::channel(None);
        // One pending command is enough: a second rescan would find nothing new.
        let (commands, receiver) = sync_channel(1);
        let (attached, outcome) = oneshot::channel();
        let Settings { host, selection, probe, volumes, interval, seccomp, kept } = settings;
        let host = Host { node_name: Some(host.name()), ..host };
        let scrapes = Scrapes::default();
        let counted = scrapes.clone();
        let attach = move || -> Result<Collector> {
            let mut collector = origin::begin(host, selection, probe, kept)?;
            origin::measure_volumes(&mut collector, volumes)?;
            // Most of the code that has run so far is the loader, which is not needed again.
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

    /// Returns the snapshots as they are published; `None` before the first. The channel closes when the collector ends.
    pub fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// Returns the counter that the server increments.
    pub fn scrapes(&self) -> Scrapes {
        self.scrapes.clone()
    }

    /// Collects one last time and stops the collector. Gives up after [`LAST_COLLECTION_TIMEOUT`].
    pub async fn collect_and_stop(&self) {
        let mut snapshots = self.snapshots();
        let ended = async {
            while let Err(TrySendError::Full(_)) = self.commands.try_send(CollectorCommand::Stop) {
                sleep(Duration::from_millis(10)).await;
            }
            while snapshots.changed().await.is_ok() {}
        };
        if timeout(LAST_COLLECTION_TIMEOUT, ended).await.is_err() {
            log::warn!(
                "the last collection took longer than {LAST_COLLECTION_TIMEOUT:?}: stopping without it"
            );
        }
    }
}

/// Makes the collector scan the devices whenever a disk appears or disappears.
async fn follow_uevents(uevents: io::Result<Uevents>, commands: SyncSender<CollectorCommand>) {
    match uevents {
        Ok(uevents) => loop {
            if let Err(error) = uevents.next().await {
                log::warn!("cannot read uevents: {error}; scanning devices every 30 s instead");
                return;
            }
            // If the channel is full, a rescan is pending anyway.
            let _ = commands.try_send(CollectorCommand::Rescan);
        },
        Err(error) => log::warn!("cannot subscribe to uevents: {error}; scanning devices every 30 s instead"),
    }
}
