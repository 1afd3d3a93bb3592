//! `/api/v1/events`: one event per collection, as [server-sent events]. An event only announces a snapshot, so a slow client
//! keeps no old snapshots in memory.
//!
//! [server-sent events]: https://html.spec.whatwg.org/multipage/server-sent-events.html

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use biolat_model::{snapshot::Snapshot, text::time::unix_seconds};
use hyper::body::{Body, Bytes, Frame};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{admission::Admission, conditional, connection_slots::ConnectionSlot};

/// Tells clients to reconnect 2 s after a stream has ended.
const RETRY: &[u8] = b"retry: 2000\n\n";
/// A comment, which keeps the connection alive and is ignored by clients.
const HEARTBEAT: &[u8] = b":\n\n";
const ADMISSION_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The response body. hyper polls it when the previous event has been sent, so a slow client misses events and none are queued.
pub(super) struct EventStream(NextEvent);

type NextEvent = Pin<Box<dyn Future<Output = Option<(Subscription, Bytes)>> + Send>>;

struct Subscription {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    shutting_down: watch::Receiver<bool>,
    admission: Admission,
    heartbeat: Duration,
    ends: Instant,
    is_new: bool,
}

impl EventStream {
    /// Sends an event for the latest snapshot and for each later one, until the collector ends, the server shuts down, the web
    /// config changes, or the stream reaches its maximum lifetime.
    pub(super) fn new(
        mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
        admission: Admission,
        slot: &ConnectionSlot,
    ) -> Self {
        snapshots.mark_changed();
        let (limits, shutting_down) = (slot.limits(), slot.shutting_down());
        let subscription = Subscription {
            snapshots,
            shutting_down,
            admission,
            heartbeat: limits.heartbeat,
            ends: Instant::now() + limits.stream,
            is_new: true,
        };
        Self(Box::pin(subscription.next()))
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let next = ready!(self.0.as_mut().poll(cx));
        Poll::Ready(next.map(|(subscription, bytes)| {
            self.0 = Box::pin(subscription.next());
            Ok(Frame::data(bytes))
        }))
    }
}

impl Subscription {
    async fn next(mut self) -> Option<(Self, Bytes)> {
        if std::mem::take(&mut self.is_new) {
            return Some((self, Bytes::from_static(RETRY)));
        }
        let heartbeat_at = Instant::now() + self.heartbeat;
        loop {
            let event = tokio::select! {
                // Announces the last snapshot before the stream ends.
                biased;
                changed = self.snapshots.changed() => {
                    changed.ok()?;
                    self.snapshots.borrow_and_update().as_deref().map(event)
                }
                _ = self.shutting_down.wait_for(|&shutting_down| shutting_down) => return None,
                () = sleep_until(heartbeat_at.min(Instant::now() + ADMISSION_CHECK_INTERVAL)) => None,
            };
            if Instant::now() >= self.ends || !self.admission.is_current().await {
                return None;
            }
            if let Some(event) = event {
                return Some((self, event));
            }
            if Instant::now() >= heartbeat_at {
                return Some((self, Bytes::from_static(HEARTBEAT)));
            }
        }
    }
}

fn event(snapshot: &Snapshot) -> Bytes {
    let (etag, taken) = (conditional::etag(snapshot), unix_seconds(snapshot.taken));
    format!("event: collection\nid: {etag}\ndata: {{\"taken\":{taken}}}\n\n").into()
}
