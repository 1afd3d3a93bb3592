//! The source of snapshots: this process's own probe, or a running daemon.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Result, bail};
use biolat_client::{Document, PORT, Remote, Target, Update};
use biolat_collect::{
    collector::{Handle, MeasureVolumes, Settings},
    device::{self, IdKind},
};
use biolat_model::{api::ApiSlowLog, device::Selection, snapshot::Snapshot, text::format, version};
use biolat_system::{
    cpus::CpuNodes,
    rights::{self, Role},
};
use tokio::{net::TcpStream, sync::watch, time::timeout};

use super::options::CommonOptions;

/// The probe's counters are 32 bits wide and wrap, so they are read at least this often, even in long windows.
const LONGEST_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout for connecting to a daemon on this host.
const LOCAL_TIMEOUT: Duration = Duration::from_millis(300);

/// What a command needs from a source.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Minimum length of a window.
    pub(super) window: Duration,
    /// Threshold for recording I/Os. `None` if they need not be recorded.
    pub(super) slow: Option<Duration>,
}

/// A document of a daemon that can also be made from a snapshot of this process's own probe.
pub(super) trait SourceDocument: Document {
    /// Makes the document of a collector that records I/Os slower than `slow`.
    fn of(snapshot: &Arc<Snapshot>, slow: Option<Duration>) -> Arc<Self>;
}

impl SourceDocument for Snapshot {
    fn of(snapshot: &Arc<Snapshot>, _: Option<Duration>) -> Arc<Self> {
        Arc::clone(snapshot)
    }
}

impl SourceDocument for ApiSlowLog {
    fn of(snapshot: &Arc<Snapshot>, slow: Option<Duration>) -> Arc<Self> {
        Arc::new(Self::of(snapshot, slow))
    }
}

/// A source of snapshots.
pub(super) struct Source<T = Snapshot> {
    /// The first snapshot, or another document made from it.
    pub(super) first: Arc<T>,
    /// Number of collections in a window of the requested length.
    pub(super) collections: u64,
    /// Description: `measuring on this host (biolat 0.1.0, kernel 6.18.0)`.
    pub(super) about: String,
    /// Short description: `local probe`, or the daemon's address.
    pub(super) place: String,
    /// The NUMA node of each CPU. Unknown for other hosts.
    pub(super) nodes: CpuNodes,
    origin: Origin<T>,
}

enum Origin<T> {
    Own(Own),
    Remote(Remote<T>),
}

/// This process's own probe.
struct Own {
    collector: Handle,
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    slow: Option<Duration>,
}

impl<T: SourceDocument> Source<T> {
    /// Asks a running daemon. Drops all capabilities of the calling thread.
    pub(super) async fn open_remote(
        target: &Target,
        options: &CommonOptions,
        needs: Needs,
        max_outage: Duration,
    ) -> Result<Self> {
        let (credentials, selection) = (options.source.credentials(), options.devices.selection()?);
        let remote: Remote<T> = Remote::open(target.clone(), &credentials, selection, max_outage).await?;
        rights::drop_privileges(Role::Serving, false)?;
        let first = Arc::clone(&remote.first);
        let interval = first.interval().as_secs_f64();
        let about = format!(
            "biolat-daemon {} on {} at {target}, interval {}",
            first.biolat(),
            format::host(first.host()),
            format::duration(interval),
        );
        // Rounded up, with a tolerance of a hundredth of a collection.
        let collections = (needs.window.as_secs_f64() / interval.max(0.001) - 0.01).ceil().max(1.0) as u64;
        Ok(Self {
            first,
            collections,
            about,
            place: target.to_string(),
            nodes: CpuNodes::default(),
            origin: Origin::Remote(remote),
        })
    }

    /// Attaches a probe of its own. Drops all capabilities of the calling thread, and restricts it to the system calls that
    /// output needs, unless `--no-seccomp` is given.
    pub(super) async fn open_own(options: &CommonOptions, needs: Needs) -> Result<Self> {
        let collections = needs.window.as_nanos().div_ceil(LONGEST_INTERVAL.as_nanos()).max(1) as u64;
        let interval = needs.window / u32::try_from(collections).unwrap_or(u32::MAX);
        let host = options.machine.host();
        let mut own = Own::start(options, interval, needs.slow).await?;
        let about = about_this_host(options)?;
        let nodes = CpuNodes::read(&host.sysfs);
        rights::drop_privileges(Role::Tui, options.machine.seccomp.is_enabled())?;
        let first = own.next().await?;
        Ok(Self {
            first,
            collections,
            about,
            place: "local probe".to_owned(),
            nodes,
            origin: Origin::Own(own),
        })
    }

    /// Whether the source is a daemon.
    pub(super) const fn is_remote(&self) -> bool {
        matches!(self.origin, Origin::Remote(_))
    }

    /// The next update. Cancel-safe: only snapshots that a later one replaces are skipped. No update follows an error.
    pub(super) async fn next(&mut self) -> Result<Update<T>> {
        match &mut self.origin {
            Origin::Own(own) => own.next().await.map(Update::Snapshot),
            Origin::Remote(remote) => remote.next().await,
        }
    }

    /// A last snapshot as of now. `None` if there is nothing new or it takes too long.
    pub(super) async fn last(&mut self) -> Option<Arc<T>> {
        match &mut self.origin {
            Origin::Own(own) => own.last().await,
            Origin::Remote(remote) => remote.last().await,
        }
    }

    /// The actual length of a window: a multiple of the interval between collections.
    pub(super) fn window(&self) -> Duration {
        self.first.interval().saturating_mul(u32::try_from(self.collections).unwrap_or(u32::MAX))
    }
}

impl Own {
    async fn start(options: &CommonOptions, interval: Duration, slow: Option<Duration>) -> Result<Self> {
        let settings = Settings {
            host: options.machine.host(),
            selection: options.devices.selection()?.unwrap_or_default(),
            probe: biolat_probe::Options { slow, ..biolat_probe::Options::default() },
            volumes: MeasureVolumes::Auto,
            interval,
            kept: None,
            seccomp: options.machine.seccomp.is_enabled(),
        };
        let collector = Handle::start(settings).await?;
        Ok(Self { snapshots: collector.snapshots(), collector, slow })
    }

    async fn next<T: SourceDocument>(&mut self) -> Result<Arc<T>> {
        loop {
            if self.snapshots.changed().await.is_err() {
                bail!("the collector has stopped: please report this bug, with its log lines");
            }
            if let Some(document) = self.latest() {
                return Ok(document);
            }
        }
    }

    fn latest<T: SourceDocument>(&mut self) -> Option<Arc<T>> {
        self.snapshots.borrow_and_update().as_ref().map(|snapshot| T::of(snapshot, self.slow))
    }

    async fn last<T: SourceDocument>(&mut self) -> Option<Arc<T>> {
        self.collector.collect_and_stop().await;
        self.latest()
    }
}

/// Describes a measurement on this host.
pub(super) fn about_this_host(options: &CommonOptions) -> Result<String> {
    let host = options.machine.host();
    Ok(format!(
        "measuring on this host (biolat {}, kernel {}){}",
        version::VERSION,
        host.kernel_release().unwrap_or_default(),
        if options.devices.selection()?.is_none() { without_loops(&host.sysfs) } else { "" },
    ))
}

/// A note that loop devices are left out, if there are any.
fn without_loops(sysfs: &Path) -> &'static str {
    let devices = device::scan(sysfs, IdKind::Directory, |_| None).unwrap_or_default();
    let names = devices.iter().map(|device| device.name.as_str());
    let shown = Selection::default().for_devices(names.clone());
    let with_loops = Selection::default().with_loops();
    let has_others = names.into_iter().any(|name| with_loops.shows(name) && !shown.shows(name));
    if has_others { ", without loop devices: --loop shows them" } else { "" }
}

/// The error if nothing can be measured on a host without a daemon.
pub(super) fn without_daemon(error: &anyhow::Error) -> String {
    format!("{error:#}; no biolat-daemon listens on port {PORT} of this host: --host HOST asks another one")
}

/// Whether something listens on the daemon's port.
pub(super) async fn is_daemon_here() -> bool {
    matches!(timeout(LOCAL_TIMEOUT, TcpStream::connect(("localhost", PORT))).await, Ok(Ok(_)))
}
