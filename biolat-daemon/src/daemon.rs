//! The daemon: attaches the probe, collects, and serves until it is told to stop.

use std::{net::TcpListener, pin::pin, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, bail};
use biolat_collect::collector::{Handle, Kept, Settings};
use biolat_history::{FileWriter, Origin, SharedHistory};
use biolat_model::snapshot::Snapshot;
use biolat_system::{
    passed_fds::KeptFd,
    rights::{self, Role},
    service_manager::{Notification, ServiceManager},
};
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    sync::watch,
    task::spawn_blocking,
    time::{Interval, timeout},
};

use crate::{
    config::Config,
    http::{self, Limits, Service},
    web_config::WebConfig,
};

/// How long a shutdown waits for the last interval to be written to the history file.
const FINAL_WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Attaches the probe, collects, and serves on these listeners until `shutdown` completes.
///
/// The caller must not wait for the runtime's blocking threads afterwards: a hung drive can block one of them forever.
pub async fn run(
    config: Config,
    listeners: Vec<TcpListener>,
    kept: Vec<KeptFd>,
    shutdown: impl Future<Output = ()>,
) -> Result<()> {
    let mut shutdown = pin!(shutdown);
    let history = config.history.map(|limits| SharedHistory::new(limits, time_since_boot()));
    let recorder = history.clone().map(|history| Recorder::start(history, &config)).transpose()?;
    // Opens its socket, which is not possible after privileges are dropped.
    let service_manager = ServiceManager::of_environment();
    let settings = Settings {
        host: config.host,
        selection: config.selection,
        probe: config.probe,
        volumes: config.volumes,
        interval: config.interval,
        seccomp: config.seccomp,
        kept: Kept::open(config.pin.as_deref(), kept)?,
    };
    let collector = tokio::select! {
        () = &mut shutdown => return Ok(()),
        started = Handle::start(settings) => started?,
    };
    rights::drop_privileges(Role::Serving, config.seccomp)?;

    // Starts the first blocking thread, which encodes responses. Starting one later may fail.
    spawn_blocking(|| ()).await?;
    // The web config is read after privileges are dropped, so a missing read permission shows now and not at a reload. It is read
    // on a blocking thread because its drive may hang.
    let web_config = config.web_config.map(|path| spawn_blocking(move || WebConfig::open(&path)));
    let web_config = match web_config {
        Some(opened) => Some(opened.await??),
        None => None,
    };
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
    if let Some(history) = history {
        service = service.with_history(history);
    }
    let recording = recorder.map(|recorder| tokio::spawn(recorder.run(collector.snapshots())));
    if let Some(web_config) = web_config {
        service = service.with_web_config(web_config);
    }
    let mut serving =
        tokio::spawn(http::serve(listeners, service, Limits::of_interval(config.interval), stopped));
    tokio::select! {
        () = shutdown => {}
        () = notify_until_collector_ends(collector.snapshots(), &service_manager, config.interval) => {
            bail!("the collector ended unexpectedly: please report this with the log lines above")
        }
        _ = &mut serving => bail!("the server ended unexpectedly: please report this with the log lines above"),
    }

    service_manager.notify(Notification::Stopping);
    // Before the server stops, so that requests in progress get the last snapshot.
    collector.collect_and_stop().await;
    if let Some(recording) = recording {
        // A hung drive would block the write.
        let _ = timeout(FINAL_WRITE_TIMEOUT, recording).await;
    }
    let _ = stop.send(true);
    let _ = serving.await;
    Ok(())
}

/// Records snapshots in the history and tells the file writer about them.
struct Recorder {
    history: SharedHistory,
    writer: Option<FileWriter>,
}

impl Recorder {
    fn start(history: SharedHistory, config: &Config) -> Result<Self> {
        let start = |path| {
            let boot = config.host.boot_id().context("cannot read the kernel's id of this boot")?;
            let origin = Origin { boot, devices: format!("{:?}", config.selection) };
            FileWriter::start(path, origin, history.clone(), time_since_boot, config.seccomp)
        };
        let writer = config.history_file.clone().map(start).transpose()?;
        Ok(Self { history, writer })
    }

    /// Adds an interval to the history for each successful collection. This runs on a blocking thread, because it can take
    /// milliseconds with hundreds of devices. If recording falls behind, the next interval covers all snapshots since the last
    /// one.
    async fn run(self, mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>) {
        let mut recorded = None;
        while snapshots.changed().await.is_ok() {
            let now = time_since_boot();
            let Some(snapshot) = snapshots.borrow_and_update().clone() else { continue };
            // After a failed collection the last snapshot is published again, with updated health.
            if recorded.replace(snapshot.taken) == Some(snapshot.taken) {
                continue;
            }
            let history = self.history.clone();
            let _ = spawn_blocking(move || history.record(&snapshot, now)).await;
            self.writer.iter().for_each(FileWriter::recorded);
        }
        if let Some(writer) = self.writer {
            writer.end().await;
        }
    }
}

/// Returns the time since boot, including time in suspend.
fn time_since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
}

/// Tells systemd that the daemon is ready once there is a snapshot, then feeds the watchdog, if there is one, while collections
/// succeed or wait for probe runs to finish. Returns when the collector ends.
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
        is_ready_sent = is_ready_sent || service_manager.notify(Notification::Ready);
        tokio::select! {
            changed = snapshots.changed() => if changed.is_err() {
                return;
            },
            () = next(&mut ticks) => {
                let stalled = snapshots.borrow().as_ref().and_then(|snapshot| snapshot.health.stalled());
                match stalled.unwrap_or_default() {
                    since if since < collection_timeout => {
                        service_manager.notify(Notification::Alive);
                    }
                    since => log::error!(
                        "no collection has succeeded for {since:.0?}: not feeding the watchdog, so systemd will restart biolat"
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
