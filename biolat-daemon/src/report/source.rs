//! Where snapshots come from: a probe of this process' own, or a biolat that runs already.

use std::{sync::Arc, time::Duration};

use anyhow::{Result, bail};
use tokio::sync::watch;

use super::{options::Options, remote::Remote};
use crate::{
    api::Snapshot,
    collect::{self, Settings},
    rights::{self, Role},
    snapshot, version,
};

/// The kernel's counters are 32 bits wide and wrap: they are read at least that often, however long a window is.
const LONGEST: Duration = Duration::from_secs(5);

/// What a source tells.
#[derive(Clone, Debug)]
pub enum News {
    /// A pass that was not told of yet. Counters are cumulative: take a [`Window`](super::window::Window) of two.
    Pass(Arc<Snapshot>),
    /// Something is wrong for now, and it goes on all the same.
    Trouble(String),
}

/// A source of snapshots.
pub struct Source {
    /// The first snapshot.
    pub first: Arc<Snapshot>,
    /// How many passes there are in a window as long as it is wanted.
    pub passes: u64,
    /// What it is, in words: `tracing with an own probe (kernel 6.18.0)`.
    pub about: String,
    origin: Origin,
}

enum Origin {
    Own(Own),
    Remote(Remote),
}

/// A probe of this process' own.
struct Own {
    collector: collect::Handle,
    snapshots: watch::Receiver<Option<Arc<snapshot::Snapshot>>>,
    host: String,
    interval: Duration,
}

impl Source {
    /// Opens what the options name, for windows of that length at the least. The calling thread keeps no capability; with an
    /// own probe, and unless the options say otherwise, no system call either but those it takes to show things.
    pub async fn open(options: &Options, window: Duration) -> Result<Self> {
        match &options.from {
            Some(target) => {
                let remote = Remote::open(target.clone(), options).await?;
                rights::drop_privileges(Role::Serving, false)?;
                let first = Arc::clone(&remote.first);
                let about = format!(
                    "reading biolat {} on {} at {target}, a pass every {}",
                    first.biolat,
                    if first.host.is_empty() { "a host without a name" } else { &first.host },
                    super::units::seconds(first.interval),
                );
                // A window that is next to a whole number of passes is that.
                let passes = (window.as_secs_f64() / first.interval.max(0.001) - 0.01).ceil().max(1.0) as u64;
                Ok(Self { first, passes, about, origin: Origin::Remote(remote) })
            }
            None => {
                let passes = window.as_nanos().div_ceil(LONGEST.as_nanos()).max(1) as u64;
                let interval = window / u32::try_from(passes).unwrap_or(u32::MAX);
                let mut own = Own::start(options, interval).await?;
                let about = format!(
                    "tracing with an own probe (biolat {}, kernel {})",
                    version::VERSION,
                    options.host.kernel_release()
                );
                rights::drop_privileges(Role::Tui, !options.no_seccomp)?;
                let first = own.next().await?;
                Ok(Self { first, passes, about, origin: Origin::Own(own) })
            }
        }
    }

    /// What comes next. May be dropped and called again at any time: nothing is lost but what is overtaken. An error is the end.
    pub async fn next(&mut self) -> Result<News> {
        match &mut self.origin {
            Origin::Own(own) => own.next().await.map(News::Pass),
            Origin::Remote(remote) => remote.next().await,
        }
    }

    /// A last pass, or a last look, of what came since the last one; nothing if there is nothing new or it takes too long.
    pub async fn last(&mut self) -> Option<Arc<Snapshot>> {
        match &mut self.origin {
            Origin::Own(own) => own.last().await,
            Origin::Remote(remote) => remote.last().await,
        }
    }

    /// How long a window is, as far as passes allow.
    #[must_use]
    pub fn window(&self) -> Duration {
        Duration::try_from_secs_f64(self.first.interval * self.passes as f64).unwrap_or_default()
    }
}

impl Own {
    async fn start(options: &Options, interval: Duration) -> Result<Self> {
        let settings = Settings {
            host: options.host.clone(),
            selection: options.selection()?.unwrap_or_default(),
            probe_stats: false,
            interval,
            seccomp: !options.no_seccomp,
        };
        let collector = collect::Handle::start(settings).await?;
        Ok(Self { snapshots: collector.snapshots(), collector, host: options.host.name(), interval })
    }

    async fn next(&mut self) -> Result<Arc<Snapshot>> {
        loop {
            if self.snapshots.changed().await.is_err() {
                bail!("the collector ended by itself: please report what it logged");
            }
            if let Some(snapshot) = self.seen() {
                return Ok(snapshot);
            }
        }
    }

    fn seen(&mut self) -> Option<Arc<Snapshot>> {
        let snapshot = self.snapshots.borrow_and_update().clone()?;
        Some(Arc::new(Snapshot::of(&snapshot, &self.host, self.interval)))
    }

    async fn last(&mut self) -> Option<Arc<Snapshot>> {
        self.collector.collect_and_stop().await;
        self.seen()
    }
}
