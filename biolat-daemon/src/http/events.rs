//! `/api/v1/events`: who listens is told of each pass as it ends, as [server-sent events]. An event says that there are new
//! figures and not what they are, so that a slow listener keeps no old ones in memory.
//!
//! [server-sent events]: https://html.spec.whatwg.org/multipage/server-sent-events.html

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::body::{Body, Bytes, Frame};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{admission::Admission, conditional, connection_slots::ConnectionSlot};
use crate::{api, snapshot::Snapshot};

/// After how many milliseconds a listener whose stream has ended comes again.
const GREETING: &[u8] = b"retry: 2000\n\n";
/// Nothing to anybody but the connection.
const COMMENT: &[u8] = b":\n\n";
/// How often it is looked whether the stream may go on.
const LOOK: Duration = Duration::from_secs(1);

/// The body. It is asked for more when what was before has gone out: whoever is slow misses passes, and nothing queues.
pub(super) struct EventStream(Next);

type Next = Pin<Box<dyn Future<Output = Option<(Stream, Bytes)>> + Send>>;

struct Stream {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    ending: watch::Receiver<bool>,
    admission: Admission,
    heartbeat: Duration,
    ends: Instant,
    is_new: bool,
}

impl EventStream {
    /// Of the pass before this call, and of each after it: until there are no more, the server ends, the admission is
    /// withdrawn, or the time is over.
    pub(super) fn new(
        mut snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
        admission: Admission,
        slot: &ConnectionSlot,
    ) -> Self {
        snapshots.mark_changed();
        let (limits, ending) = (slot.limits(), slot.shutting_down());
        let ends = Instant::now() + limits.stream;
        let stream = Stream { snapshots, ending, admission, heartbeat: limits.heartbeat, ends, is_new: true };
        Self(Box::pin(stream.next()))
    }
}

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = ready!(self.0.as_mut().poll(cx));
        Poll::Ready(next.map(|(stream, bytes)| {
            self.0 = Box::pin(stream.next());
            Ok(Frame::data(bytes))
        }))
    }
}

impl Stream {
    async fn next(mut self) -> Option<(Self, Bytes)> {
        if std::mem::take(&mut self.is_new) {
            return Some((self, Bytes::from_static(GREETING)));
        }
        let silent_until = Instant::now() + self.heartbeat;
        loop {
            let event = tokio::select! {
                // The last pass is told before the end.
                biased;
                changed = self.snapshots.changed() => {
                    changed.ok()?;
                    self.snapshots.borrow_and_update().as_deref().map(event)
                }
                _ = self.ending.wait_for(|&ending| ending) => return None,
                () = sleep_until(silent_until.min(Instant::now() + LOOK)) => None,
            };
            if Instant::now() >= self.ends || !self.admission.holds().await {
                return None;
            }
            if let Some(event) = event {
                return Some((self, event));
            }
            if Instant::now() >= silent_until {
                return Some((self, Bytes::from_static(COMMENT)));
            }
        }
    }
}

fn event(snapshot: &Snapshot) -> Bytes {
    let (tag, taken) = (conditional::tag(snapshot), api::seconds(snapshot.taken));
    format!("event: pass\nid: {tag}\ndata: {{\"taken\":{taken}}}\n\n").into()
}
