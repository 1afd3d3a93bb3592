//! A running daemon, here or on another host. A task polls it for new snapshots.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow, bail};
use biolat_model::{device::Selection, snapshot::Snapshot};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{
    client::{Client, Fetched},
    credentials::Credentials,
    document::Document,
    target::Target,
    update::Update,
};

/// Time for the first collection of a daemon that was just started.
const FIRST_COLLECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a daemon that has answered before may be unreachable, for instance while it restarts.
pub const MAX_OUTAGE: Duration = Duration::from_secs(30);

/// Timeout of the last request.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// A daemon that has answered.
pub struct Remote<T = Snapshot> {
    pub first: Arc<T>,
    updates: mpsc::Receiver<Result<Update<T>>>,
    stop: Option<oneshot::Sender<()>>,
}

impl<T: Document> Remote<T> {
    /// Requests the first snapshot, and starts polling for more.
    pub async fn open(
        target: Target,
        credentials: &Credentials,
        selection: Option<Selection>,
        max_outage: Duration,
    ) -> Result<Self> {
        let client = Client::new(target, String::new(), credentials)?;
        let mut poll: Poll<T> = Poll { client, selection, max_outage };
        let first = poll.first().await?;
        let (sender, updates) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let pause = first.interval();
        tokio::spawn(poll.run(pause, sender, stopped));
        Ok(Self { first, updates, stop: Some(stop) })
    }

    /// The next update. Cancel-safe.
    pub async fn next(&mut self) -> Result<Update<T>> {
        self.updates.recv().await.unwrap_or_else(|| bail!("the polling task has ended"))
    }

    /// The latest snapshot, if it is a new one.
    pub async fn last(&mut self) -> Option<Arc<T>> {
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
pub async fn fetch<T: Document>(target: Target, credentials: &Credentials) -> Result<Option<T>> {
    match Client::<T>::new(target, String::new(), credentials)?.fetch().await? {
        Fetched::New(document) => Ok(Some(*document)),
        Fetched::Same | Fetched::NotReady(_) => Ok(None),
    }
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
