//! A daemon's history. The whole response is received before it is decompressed and read: the daemon aborts a response after two
//! minutes, so a slow reader of the output must not block it.

use std::{
    io::{Seek as _, SeekFrom, Write as _},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_model::{api::ApiHistory, device::Selection};
use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use hyper::{StatusCode, body::Incoming};
use tempfile::SpooledTempFile;
use tokio::time::timeout;

use super::{
    client::{Client, is_gzip},
    credentials::Credentials,
    history_answer,
    intervals::Intervals,
    target::Target,
};

/// Largest response kept in memory. A larger one goes to a temporary file.
const IN_MEMORY: usize = 16 << 20;

/// A day of 21 busy drives takes a hundredth of this.
const MAX_BYTES: u64 = 8 << 30;

/// Timeout for the next bytes: before sending the first ones, the daemon may have to add up a whole day.
const CHUNK_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the response. The daemon's own is shorter.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Requests a daemon's history with this query. A response that does not fit in memory is kept in `folder`.
pub async fn history(
    target: Target,
    query: String,
    credentials: &Credentials,
    selection: Option<Selection>,
    folder: &Path,
) -> Result<Intervals<ApiHistory>> {
    let about = target.to_string();
    let mut client: Client<ApiHistory> = Client::new(target, query, credentials)?;
    let mut kept = SpooledTempFile::new_in(IN_MEMORY, folder);
    let (_connection, answer) = client.answer().await?;
    let (head, body) = answer.into_parts();
    if head.status != StatusCode::OK {
        let body = client.whole(body).await?;
        return Err(client.refused(&head, &body));
    }
    client.keep(body, &mut kept, folder).await?;
    let is_gzip = is_gzip(&head);
    Intervals::begin(selection, move |sink| {
        let read = if is_gzip {
            history_answer::read(&mut GzDecoder::new(kept), sink)
        } else {
            history_answer::read(&mut kept, sink)
        };
        read.with_context(|| format!("cannot read {about}"))
    })
    .await
}

impl Client<ApiHistory> {
    async fn keep(&self, mut body: Incoming, kept: &mut SpooledTempFile, folder: &Path) -> Result<()> {
        let (began, mut bytes) = (Instant::now(), 0);
        let unwritable = || format!("cannot store the answer in {}", folder.display());
        loop {
            let frame = timeout(CHUNK_TIMEOUT, body.frame()).await;
            let Some(frame) =
                frame.map_err(|_| self.too_slow("the next part of the answer", CHUNK_TIMEOUT))?
            else {
                break;
            };
            let frame = frame.map_err(|error| {
                let hint = "the daemon aborts an answer after two minutes: if that is why, ask for less, with --since, --until, \
                            -d, or longer windows";
                anyhow!("{error:#}; {hint}", error = self.interrupted(&error))
            })?;
            let data = frame.into_data().unwrap_or_default();
            bytes += data.len() as u64;
            if bytes > MAX_BYTES {
                bail!("{}: its answer is larger than {} GiB", self.target, MAX_BYTES >> 30);
            }
            if began.elapsed() > TIMEOUT {
                return Err(self.too_slow("the answer", TIMEOUT));
            }
            kept.write_all(&data).with_context(unwritable)?;
        }
        kept.seek(SeekFrom::Start(0)).with_context(unwritable)?;
        Ok(())
    }
}
