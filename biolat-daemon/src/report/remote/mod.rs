//! A biolat that runs already, here or elsewhere: it is asked for its latest snapshot again and again.

mod client;
mod sound;
pub mod target;
mod tls;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

use super::{options::Options, source::News};
use crate::{api::Snapshot, device::selection::Selection};
use client::{Client, Fetched};
use target::Target;

/// Where the password is, if it is in no file.
const PASSWORD: &str = "BIOLAT_PASSWORD";

/// How long a daemon that has just begun may take for its first pass.
const FIRST_PASS: Duration = Duration::from_secs(10);

/// How long a daemon may be gone, once it has answered: it may be restarted.
const ABSENCE: Duration = Duration::from_secs(30);

/// How long a last look may take.
const LAST_LOOK: Duration = Duration::from_secs(2);

/// A biolat that has answered.
pub(super) struct Remote {
    pub(super) first: Arc<Snapshot>,
    news: mpsc::Receiver<Result<News>>,
    stop: Option<oneshot::Sender<()>>,
}

impl Remote {
    /// Asks it once, and then whenever there should be something new.
    pub(super) async fn open(target: Target, options: &Options) -> Result<Self> {
        if options.ca_file.is_some() && !target.tls {
            bail!("--ca-file is for TLS, which {target} is without: give https://{}", target.authority());
        }
        let credentials = credentials(&target, options)?;
        // Who watches a table sees that it is gone, and how long, and leaves it when that is enough.
        let absence = if options.top { Duration::MAX } else { ABSENCE };
        let tls = if target.tls { Some(tls::config(options.ca_file.as_deref())?) } else { None };
        let mut poll =
            Poll { client: Client::new(target, credentials, tls)?, selection: options.selection()?, absence };
        let first = poll.first().await?;
        let (sender, news) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let pause = Duration::try_from_secs_f64(first.interval).unwrap_or(FIRST_PASS);
        tokio::spawn(poll.run(pause, sender, stopped));
        Ok(Self { first, news, stop: Some(stop) })
    }

    /// What comes next.
    pub(super) async fn next(&mut self) -> Result<News> {
        self.news.recv().await.unwrap_or_else(|| bail!("nobody asks any more"))
    }

    /// A last look, if there is something new.
    pub(super) async fn last(&mut self) -> Option<Arc<Snapshot>> {
        drop(self.stop.take());
        let mut latest = None;
        let look = async {
            while let Some(news) = self.news.recv().await {
                if let Ok(News::Pass(snapshot)) = news {
                    latest = Some(snapshot);
                }
            }
        };
        let _ = timeout(LAST_LOOK, look).await;
        latest
    }
}

struct Poll {
    client: Client,
    selection: Option<Selection>,
    absence: Duration,
}

impl Poll {
    async fn first(&mut self) -> Result<Arc<Snapshot>> {
        let began = Instant::now();
        while began.elapsed() < FIRST_PASS {
            if let Fetched::New(snapshot) = self.client.fetch().await? {
                return Ok(self.chosen(snapshot));
            }
            sleep(Duration::from_millis(200)).await;
        }
        bail!("biolat has no figures there yet, after {} s: what does its log say?", FIRST_PASS.as_secs())
    }

    /// Asks little before a pass is due, and often then. A daemon that is gone is waited for.
    async fn run(
        mut self,
        interval: Duration,
        news: mpsc::Sender<Result<News>>,
        mut stop: oneshot::Receiver<()>,
    ) {
        let often = (interval / 20).clamp(Duration::from_millis(20), Duration::from_millis(500));
        let mut pause = often;
        let mut gone: Option<Instant> = None;
        loop {
            let is_over = timeout(pause, &mut stop).await.is_ok();
            let fetched = match self.client.fetch().await {
                Ok(Fetched::NotReady) => Err(anyhow!("biolat has no figures there")),
                other => other,
            };
            let told = match fetched {
                Ok(Fetched::New(snapshot)) => {
                    (gone, pause) = (None, interval.mul_f64(0.9));
                    Some(Ok(News::Pass(self.chosen(snapshot))))
                }
                Ok(Fetched::Same | Fetched::NotReady) => {
                    (gone, pause) = (None, often);
                    None
                }
                Err(error) => {
                    pause = Duration::from_secs(1);
                    match gone {
                        None => {
                            gone = Some(Instant::now());
                            Some(Ok(News::Trouble(format!("{error:#}"))))
                        }
                        Some(since) if since.elapsed() > self.absence => Some(Err(error)),
                        Some(_) => None,
                    }
                }
            };
            let is_final = told.as_ref().is_some_and(Result::is_err);
            if let Some(told) = told
                && news.send(told).await.is_err()
            {
                return;
            }
            if is_over || is_final {
                return;
            }
        }
    }

    fn chosen(&self, mut snapshot: Box<Snapshot>) -> Arc<Snapshot> {
        if let Some(selection) = &self.selection {
            snapshot.devices.retain(|device| selection.shows(&device.name));
        }
        Arc::from(snapshot)
    }
}

/// Who asks, and the password.
fn credentials(target: &Target, options: &Options) -> Result<Option<(String, String)>> {
    let user = options.user.clone().or_else(|| target.user.clone());
    let password = match &options.password_file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read {}", path.display()))?;
            Some(text.lines().next().unwrap_or_default().to_owned())
        }
        // One that is in the environment may be another biolat's.
        None => target.password.clone().or_else(|| std::env::var(PASSWORD).ok()),
    };
    match (user, password) {
        (Some(user), Some(password)) => Ok(Some((user, password))),
        (Some(user), None) => {
            bail!("no password for {user}: give it in {PASSWORD}, or by --password-file FILE")
        }
        (None, Some(_)) if options.password_file.is_some() => bail!("--password-file takes --user NAME too"),
        // One that is in the environment may be for others.
        (None, _) => Ok(None),
    }
}
