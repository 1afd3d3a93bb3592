//! The daemon: attaches the probe, collects, and serves until it is asked to end.

use std::{net::TcpListener, pin::pin, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use tokio::{sync::watch, task::spawn_blocking, time::Interval};

use crate::{
    collect::{self, Kept, Settings},
    config::Config,
    http::{self, Limits, Service},
    passed_fds::KeptFd,
    rights::{self, Role},
    service_manager::{ServiceManager, State},
    snapshot::Snapshot,
    web_config::WebConfig,
};

/// Attaches the probe, collects, and serves on these listeners until `shutdown` completes.
///
/// The caller must not wait for the runtime's blocking threads afterwards: a drive that does not answer may block one of them
/// for ever.
pub async fn run(
    config: Config,
    listeners: Vec<TcpListener>,
    kept: Vec<KeptFd>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut shutdown = pin!(shutdown);
    // Its socket is opened now, as after the privileges are dropped none can be.
    let service_manager = ServiceManager::of_environment();
    let settings = Settings {
        host: config.host,
        selection: config.selection,
        probe: config.probe,
        interval: config.interval,
        seccomp: config.seccomp,
        kept: Kept::open(config.pin.as_deref(), kept)?,
        history: config.history,
    };
    let collector = tokio::select! {
        () = &mut shutdown => return Ok(()),
        started = collect::Handle::start(settings) => started?,
    };
    rights::drop_privileges(Role::Serving, config.seccomp)?;

    // Starts the first of the threads that responses are made in, while a thread can still be started.
    spawn_blocking(|| ()).await?;
    // Read after privileges are dropped, so that reloading it later cannot fail for lack of them.
    let web_config = config.web_config.as_deref().map(WebConfig::open).transpose()?;
    let scheme = web_config.as_ref().map_or("http", WebConfig::scheme);
    if web_config.as_ref().is_some_and(|config| config.protections().is_empty()) {
        log::warn!("the web config has neither TLS nor passwords: serving plain HTTP to everyone");
    }
    for listener in &listeners {
        log::info!("serving on {scheme}://{}/metrics", listener.local_addr()?);
    }
    let listeners = listeners.into_iter().map(tokio::net::TcpListener::from_std).collect::<Result<_, _>>()?;
    let (stop, stopped) = watch::channel(false);
    let mut service = Service::new(collector.snapshots(), config.serve).counting(collector.scrapes());
    if let Some(history) = collector.history() {
        service = service.with_history(history);
    }
    if let Some(web_config) = web_config {
        service = service.with_web_config(web_config);
    }
    let mut serving =
        tokio::spawn(http::serve(listeners, service, Limits::of_interval(config.interval), stopped));
    tokio::select! {
        () = shutdown => {}
        () = notify_until_collector_ends(collector.snapshots(), &service_manager, config.interval) => {
            bail!("the collector has ended unexpectedly: please report what it logged")
        }
        _ = &mut serving => bail!("the server has ended unexpectedly: please report what it logged"),
    }

    service_manager.notify(State::Stopping);
    // Before the server stops, so that requests in progress get the last snapshot.
    collector.collect_and_stop().await;
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(())
}

/// Notifies systemd when there is a first snapshot and, if systemd has a watchdog, feeds it for as long as collections succeed.
/// Returns when the collector has ended.
async fn notify_until_collector_ends(
    mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    service_manager: &ServiceManager,
    interval: Duration,
) {
    if snapshots.wait_for(Option::is_some).await.is_err() {
        return;
    }
    let watchdog = service_manager.watchdog.unwrap_or(Duration::MAX);
    let collection_timeout = watchdog.max(3 * interval);
    let mut ticks = service_manager.watchdog.map(|watchdog| tokio::time::interval(watchdog / 2));
    let mut is_ready_sent = false;
    loop {
        is_ready_sent = is_ready_sent || service_manager.notify(State::Ready);
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                return;
            },
            () = next(&mut ticks) => {
                let last_success = snapshots.borrow().as_ref().and_then(|snapshot| snapshot.health.last_success);
                match last_success.map_or(Duration::ZERO, |time| time.elapsed()) {
                    since if since < collection_timeout => {
                        service_manager.notify(State::Alive);
                    }
                    since => log::error!(
                        "no collection has succeeded for {since:.0?}: not feeding the systemd watchdog, it will restart biolat"
                    ),
                }
            }
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
