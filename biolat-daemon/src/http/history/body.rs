//! Streams the response: the next intervals are decoded from the store's blocks, encoded and compressed when the client has
//! read the previous ones. So a response of any size takes little memory.

use std::{
    io::{self, Write as _},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use biolat_model::{api::ApiHistory, period::Period};
use flate2::{Compression, write::GzEncoder};
use hyper::body::{Body, Bytes, Frame};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::spawn_blocking,
};

use crate::http::connection_slots::PendingParts;

/// Size at which a chunk is sent.
const CHUNK: usize = 32 << 10;
/// Bytes of JSON after which a chunk is sent whatever its size, so that other responses get their turn.
const ENCODED: usize = 1 << 20;

/// Time limit of a response. Until then, blocks that the store has dropped stay in memory.
const TIMEOUT: Duration = Duration::from_secs(120);

type Periods = Box<dyn Iterator<Item = Period> + Send>;

/// Encodes a response.
pub(super) struct Writer {
    periods: Periods,
    output: Output,
    /// Closes the document after the last interval.
    end: &'static [u8],
    is_first: bool,
    is_summary: bool,
}

enum Output {
    Plain(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
}

impl Output {
    // Writing to memory cannot fail.
    fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(plain) => plain.extend_from_slice(bytes),
            Self::Gzip(encoder) => _ = encoder.write_all(bytes),
        }
    }

    fn buffer(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Plain(plain) => plain,
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }

    fn finish(&mut self) {
        if let Self::Gzip(encoder) = self {
            let _ = encoder.try_finish();
        }
    }
}

impl Writer {
    pub(super) fn new(
        head: &ApiHistory,
        periods: impl Iterator<Item = Period> + Send + 'static,
        is_summary: bool,
        gzip: bool,
    ) -> Self {
        const END: &[u8] = b"]}";
        let mut output = if gzip {
            Output::Gzip(GzEncoder::new(Vec::new(), Compression::fast()))
        } else {
            Output::Plain(Vec::new())
        };
        // All keys are strings, so this cannot fail.
        let head = serde_json::to_vec(head).unwrap_or_default();
        output.write(head.strip_suffix(END).unwrap_or_default());
        Self { periods: Box::new(periods), output, end: END, is_first: true, is_summary }
    }

    /// Encodes the next bytes; `None` at the end.
    fn chunk(&mut self) -> Option<Bytes> {
        let mut encoded = 0;
        while !self.end.is_empty() && encoded < ENCODED && self.output.buffer().len() < CHUNK {
            let Some(period) = self.periods.next() else {
                self.output.write(std::mem::take(&mut self.end));
                self.output.finish();
                break;
            };
            if !std::mem::take(&mut self.is_first) {
                self.output.write(b",");
            }
            let period = if self.is_summary { period.summarized() } else { period };
            let interval = serde_json::to_vec(&period).unwrap_or_default();
            encoded += interval.len();
            self.output.write(&interval);
        }
        let bytes = std::mem::take(self.output.buffer());
        (!bytes.is_empty() || !self.end.is_empty()).then(|| bytes.into())
    }
}

/// The response body. hyper polls it when the previous chunk has been sent.
pub(super) struct HistoryBody {
    next: NextChunk,
    encoder: Arc<Semaphore>,
    deadline: Instant,
    /// Limits the number of concurrent responses.
    _reader: OwnedSemaphorePermit,
    _parts: PendingParts,
}

type NextChunk = Pin<Box<dyn Future<Output = io::Result<Option<(Writer, Bytes)>>> + Send>>;

impl HistoryBody {
    pub(super) fn new(
        writer: Writer,
        encoder: Arc<Semaphore>,
        reader: OwnedSemaphorePermit,
        parts: PendingParts,
    ) -> Self {
        let (deadline, next) = (Instant::now() + TIMEOUT, Box::pin(next(writer, Arc::clone(&encoder))));
        Self { next, encoder, deadline, _reader: reader, _parts: parts }
    }
}

impl Body for HistoryBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if Instant::now() > self.deadline {
            return Poll::Ready(Some(Err(io::ErrorKind::TimedOut.into())));
        }
        let chunk = ready!(self.next.as_mut().poll(cx));
        Poll::Ready(chunk.transpose().map(|chunk| {
            let (writer, bytes) = chunk?;
            self.next = Box::pin(next(writer, Arc::clone(&self.encoder)));
            Ok(Frame::data(bytes))
        }))
    }
}

/// Encodes the next chunk. Only one runs at a time.
async fn next(mut writer: Writer, encoder: Arc<Semaphore>) -> io::Result<Option<(Writer, Bytes)>> {
    // The semaphore is never closed.
    let permit = encoder.acquire_owned().await;
    let encoded = spawn_blocking(move || {
        let _permit = permit;
        writer.chunk().map(|bytes| (writer, bytes))
    });
    Ok(encoded.await?)
}
