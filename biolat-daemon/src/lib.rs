//! biolat's daemon as a library: [`run`] and what it is made of. One direction of data, no way back:
//!
//! ```text
//! probe ──▶ collect ──▶ snapshot ──▶ expose ──▶ http
//!              ▲
//!            device
//! ```

pub mod collect;
pub mod config;
pub mod device;
pub mod expose;
pub mod http;
pub mod listen;
pub mod log_lines;
pub mod probe;
mod process;
pub mod service_manager;
pub mod snapshot;
pub mod version;

use std::{
    net::TcpListener,
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use tokio::sync::watch;

use collect::{Collector, Command};
use config::Config;
use device::uevent::Uevents;
use http::{Limits, Service};
use service_manager::State;
use snapshot::Snapshot;

/// How long the last pass may take before the process ends without it.
const LAST_PASS: Duration = Duration::from_millis(500);

/// Attaches the probe, collects, and serves on these listeners until `shutdown` completes.
pub async fn run(
    config: Config,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let collector = Collector::attach(config.host, config.selection, config.probe_stats)?;
    for listener in &listeners {
        log::info!("serving on http://{}/metrics", listener.local_addr()?);
    }
    let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<Result<_, _>>()?;

    let (snapshots, seen) = watch::channel(None);
    // One message may wait: a second one of the same kind has nothing to add.
    let (commands, receiver) = sync_channel(1);
    let collecting = thread::Builder::new()
        .name("collect".to_owned())
        .spawn(move || collect::run(collector, config.interval, &receiver, &snapshots))
        .context("cannot start the collector's thread")?;
    let (stop, stopped) = watch::channel(false);
    let serving = tokio::spawn(http::serve(
        listeners,
        Service::new(seen.clone(), config.shape),
        Limits::default(),
        stopped,
    ));

    tokio::select! {
        () = shutdown => {}
        () = follow_devices(commands.clone()) => {}
        () = tell_when_ready(seen) => {}
    }
    service_manager::notify(State::Stopping);
    // The last pass and the last answers have nothing to do with each other.
    let last_pass = tokio::task::spawn_blocking(move || {
        let _ = commands.send(Command::Stop);
        collecting.join()
    });
    let _ = stop.send(true);
    let last_pass = tokio::time::timeout(LAST_PASS, last_pass).await;
    let _ = serving.await;
    match last_pass {
        Ok(Ok(Ok(()))) => Ok(()),
        Ok(_) => Err(anyhow!("the collector ended by itself, please report what it logged")),
        Err(_) => {
            log::warn!("the last pass took too long and was left");
            Ok(())
        }
    }
}

/// Has the collector look again whenever a disk comes or goes. Without uevents it does so now and then.
async fn follow_devices(commands: SyncSender<Command>) {
    match Uevents::subscribe() {
        Ok(uevents) => {
            while let Ok(()) =
                uevents.next().await.inspect_err(|error| log::warn!("no more uevents: {error}"))
            {
                // If the channel is full, a rescan is due anyway.
                let _ = commands.try_send(Command::Rescan);
            }
        }
        Err(error) => {
            log::warn!("cannot follow uevents ({error}): devices are looked at every half minute instead")
        }
    }
    std::future::pending().await
}

/// Tells systemd when there are figures, and then waits for ever.
async fn tell_when_ready(mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>) {
    if snapshots.wait_for(Option::is_some).await.is_ok() {
        service_manager::notify(State::Ready);
        std::future::pending().await
    }
    // The collector is gone: so is the reason to be here.
}
