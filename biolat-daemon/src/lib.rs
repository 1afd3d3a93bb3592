//! biolat's daemon as a library: [`run`] and what it is made of. One direction of data, no way back:
//!
//! ```text
//! probe ──▶ collect ──▶ snapshot ──▶ expose ──▶ http
//!              ▲
//!            device
//! ```

pub mod api;
pub mod check;
pub mod collect;
pub mod config;
pub mod device;
pub mod expose;
pub mod histogram;
pub mod host;
pub mod http;
pub mod listen;
pub mod log_lines;
mod net;
pub mod probe;
mod process;
pub mod report;
pub mod rights;
pub mod service_manager;
mod shell;
pub mod snapshot;
pub mod terminal;
pub mod version;
pub mod web_config;

use std::{
    io,
    net::TcpListener,
    pin::pin,
    sync::{
        Arc,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use tokio::{
    sync::watch,
    time::{Interval, sleep, timeout},
};

use collect::{Command, Start};
use config::Config;
use device::uevent::Uevents;
use http::{Limits, ServeConfig, Service};
use rights::Thread;
use service_manager::{ServiceManager, State};
use snapshot::Snapshot;
use web_config::WebConfig;

/// How long the last pass may take before the process ends without it.
const LAST_PASS: Duration = Duration::from_millis(500);

/// Attaches the probe, collects, and serves on these listeners until `shutdown` completes.
///
/// Whoever calls it must not wait for the runtime's blocking threads at the end: one of them may be held up by
/// a sick drive.
pub async fn run(
    config: Config,
    listeners: Vec<TcpListener>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut shutdown = pin!(shutdown);
    // Sockets are made now, as later none can be.
    let service_manager = ServiceManager::of_environment();
    let uevents = Uevents::subscribe();
    let (snapshots, seen) = watch::channel(None);
    // One message may wait: a second one of the same kind has nothing to add.
    let (commands, receiver) = sync_channel(1);
    let serve_config = ServeConfig {
        histograms: config.histograms,
        host: config.host.name(),
        interval: config.interval,
        live: config.live,
    };
    let collector = Start {
        host: config.host,
        selection: config.selection,
        probe_stats: config.probe_stats,
        interval: config.interval,
        seccomp: config.seccomp,
    };
    tokio::select! {
        () = &mut shutdown => return Ok(()),
        attached = collector.start(receiver, snapshots) => attached?,
    }
    rights::give_up(Thread::Serving, config.seccomp)?;

    // Read with the rights that it will be read with again.
    let web_config = config.web_config.as_deref().map(WebConfig::open).transpose()?;
    let scheme = web_config.as_ref().map_or("http", WebConfig::scheme);
    for listener in &listeners {
        log::info!("serving on {scheme}://{}/metrics", listener.local_addr()?);
    }
    let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<Result<_, _>>()?;
    let (stop, stopped) = watch::channel(false);
    let mut service = Service::new(seen.clone(), serve_config);
    if let Some(web_config) = web_config {
        service = service.with_web_config(web_config);
    }
    let mut serving =
        tokio::spawn(http::serve(listeners, service, Limits::of_interval(config.interval), stopped));
    tokio::select! {
        () = shutdown => {}
        () = follow_devices(uevents, commands.clone()) => {}
        () = follow_snapshots(seen.clone(), &service_manager, config.interval) => bail!("the collector ended by itself: please report what it logged"),
        _ = &mut serving => bail!("the server ended by itself: please report what it logged"),
    }

    service_manager.notify(State::Stopping);
    last_pass(&commands, seen).await;
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(())
}

/// Has the collector make a last pass, whose figures whoever is being served still gets.
async fn last_pass(commands: &SyncSender<Command>, mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>) {
    let ended = async {
        while let Err(TrySendError::Full(_)) = commands.try_send(Command::Stop) {
            sleep(Duration::from_millis(10)).await;
        }
        while snapshots.changed().await.is_ok() {}
    };
    if timeout(LAST_PASS, ended).await.is_err() {
        log::warn!("the last pass took too long and was left");
    }
}

/// Has the collector look again whenever a disk comes or goes. Without uevents it does so now and then.
async fn follow_devices(uevents: io::Result<Uevents>, commands: SyncSender<Command>) {
    match uevents {
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

/// Tells systemd when there are figures and, if it watches, that there are new ones. Returns when there will be no
/// more: the collector is gone.
async fn follow_snapshots(
    mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    service_manager: &ServiceManager,
    interval: Duration,
) {
    if snapshots.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let watchdog = service_manager.watchdog.unwrap_or(Duration::MAX);
    let patience = watchdog.max(3 * interval);
    let mut ticks = service_manager.watchdog.map(|watchdog| tokio::time::interval(watchdog / 2));
    let mut last_pass = Instant::now();
    let mut is_told = false;
    loop {
        is_told = is_told || service_manager.notify(State::Ready);
        tokio::select! {
            changed = snapshots.changed() => match changed {
                Ok(()) => last_pass = Instant::now(),
                Err(_) => return,
            },
            () = next(&mut ticks) => match last_pass.elapsed() {
                since if since < patience => {
                    service_manager.notify(State::Alive);
                }
                since => log::error!("no pass has ended for {since:.0?}: systemd's watchdog is left to bite"),
            },
        }
    }
}

async fn next(ticks: &mut Option<Interval>) {
    match ticks {
        Some(ticks) => {
            ticks.tick().await;
        }
        None => std::future::pending().await,
    }
}
