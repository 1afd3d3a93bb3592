//! A running daemon, here or on another host. A task polls it for new snapshots.

mod client;
mod document;
mod history;
mod history_answer;
mod tls;
pub(super) mod validate;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_model::{device::Selection, snapshot::Snapshot};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    options::{CommonOptions, SourceOptions},
    target::Target,
    update::Update,
};
use client::{Client, Fetched};

pub(super) use client::Versions;
pub(super) use document::{Document, Endpoint};
pub(super) use history::history;

/// The environment variable for the password.
const PASSWORD_VARIABLE: &str = "BIOLAT_PASSWORD";

/// Time for the first collection of a daemon that was just started.
const FIRST_COLLECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a daemon that has answered before may be unreachable, for instance while it restarts.
pub(super) const MAX_OUTAGE: Duration = Duration::from_secs(30);

/// Timeout of the last request.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A daemon that has answered.
pub(super) struct Remote<T = Snapshot> {
    pub(super) first: Arc<T>,
    updates: mpsc::Receiver<Result<Update<T>>>,
    stop: Option<oneshot::Sender<()>>,
}

impl<T: Document> Remote<T> {
    /// Requests the first snapshot, and starts polling for more.
    pub(super) async fn open(target: Target, options: &CommonOptions, max_outage: Duration) -> Result<Self> {
        let client = connectable(target, String::new(), &options.source)?;
        let mut poll: Poll<T> = Poll { client, selection: options.devices.selection()?, max_outage };
        let first = poll.first().await?;
        let (sender, updates) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let pause = first.interval();
        tokio::spawn(poll.run(pause, sender, stopped));
        Ok(Self { first, updates, stop: Some(stop) })
    }

    /// The next update. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Update<T>> {
        self.updates.recv().await.unwrap_or_else(|| bail!("the polling task has ended"))
    }

    /// The latest snapshot, if it is a new one.
    pub(super) async fn last(&mut self) -> Option<Arc<T>> {
        drop(self.stop.take());
        let mut latest = None;
        let drained = async {
            while let Some(update) = self.updates.recv().await {
                if let Ok(Update::Snapshot(snapshot)) = update {
                    latest = Some(snapshot);
                }
            }
        };
        let _ = timeout(LAST_REQUEST_TIMEOUT, drained).await;
        latest
    }
}

/// Requests the current document. `None` if there is none yet.
pub(super) async fn fetch<T: Document>(target: Target, options: &SourceOptions) -> Result<Option<T>> {
    match connectable::<T>(target, String::new(), options)?.fetch().await? {
        Fetched::New(document) => Ok(Some(*document)),
        Fetched::Same | Fetched::NotReady(_) => Ok(None),
    }
}

/// Creates a client, without connecting yet.
fn connectable<T: Endpoint>(target: Target, query: String, options: &SourceOptions) -> Result<Client<T>> {
    if options.ca_file.is_some() && !target.tls {
        bail!("--ca-file requires TLS: give https://{} instead of {target}", target.authority());
    }
    let credentials = credentials(&target, options)?;
    let tls = if target.tls { Some(tls::config(options.ca_file.as_deref())?) } else { None };
    Client::new(target, query, credentials, tls)
}

struct Poll<T> {
    client: Client<T>,
    selection: Option<Selection>,
    max_outage: Duration,
}

impl<T: Document> Poll<T> {
    async fn first(&mut self) -> Result<Arc<T>> {
        let began = Instant::now();
        loop {
            let reason = match self.client.fetch().await? {
                Fetched::New(snapshot) => return Ok(self.selected(snapshot)),
                Fetched::Same => String::new(),
                Fetched::NotReady(reason) => reason,
            };
            if began.elapsed() > FIRST_COLLECTION_TIMEOUT {
                bail!("no snapshot from biolat within {} s: {reason}", FIRST_COLLECTION_TIMEOUT.as_secs());
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Polls frequently from shortly before the next collection is due. Retries while the daemon is unreachable.
    async fn run(
        mut self,
        interval: Duration,
        updates: mpsc::Sender<Result<Update<T>>>,
        mut stop: oneshot::Receiver<()>,
    ) {
        let often = (interval / 20).clamp(Duration::from_millis(20), Duration::from_millis(500));
        let mut pause = often;
        let mut unreachable: Option<Instant> = None;
        loop {
            let is_over = timeout(pause, &mut stop).await.is_ok();
            let fetched = match self.client.fetch().await {
                Ok(Fetched::NotReady(reason)) => Err(anyhow!("no snapshot from biolat: {reason}")),
                other => other,
            };
            let update = match fetched {
                Ok(Fetched::New(snapshot)) => {
                    (unreachable, pause) = (None, interval.mul_f64(0.9).max(often));
                    Some(Ok(Update::Snapshot(self.selected(snapshot))))
                }
                Ok(Fetched::Same | Fetched::NotReady(_)) => {
                    (unreachable, pause) = (None, often);
                    None
                }
                Err(error) => {
                    pause = Duration::from_secs(1);
                    match unreachable {
                        None => {
                            unreachable = Some(Instant::now());
                            Some(Ok(Update::Retrying(format!("{error:#}"))))
                        }
                        Some(since) if since.elapsed() > self.max_outage => Some(Err(error)),
                        Some(_) => None,
                    }
                }
            };
            let is_final = update.as_ref().is_some_and(Result::is_err);
            if let Some(update) = update
                && updates.send(update).await.is_err()
            {
                return;
            }
            if is_over || is_final {
                return;
            }
        }
    }

    fn selected(&self, mut snapshot: Box<T>) -> Arc<T> {
        if let Some(selection) = &self.selection {
            snapshot.select(selection);
        }
        Arc::from(snapshot)
    }
}

/// User name and password.
fn credentials(target: &Target, options: &SourceOptions) -> Result<Option<(String, String)>> {
    let user = options.user.clone().or_else(|| target.user.clone());
    let password = match &options.password_file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        None => target.password.clone().or_else(|| std::env::var(PASSWORD_VARIABLE).ok()),
    };
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some((user, password))),
        (Some(user), None) => {
            bail!("no password for {user}: give it in {PASSWORD_VARIABLE}, or in --password-file FILE")
        }
        (None, Some(_)) if options.password_file.is_some() => {
            bail!("--password-file requires --user NAME")
        }
        // The variable may be set for another daemon.
        (None, _) => Ok(None),
    }
}
