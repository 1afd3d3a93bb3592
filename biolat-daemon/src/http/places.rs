//! Places for connections: so many and no more. A connection has one from its beginning to its end; when its place is
//! given to another one, or it has had its time, it ends.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use super::Limits;

/// An answer that takes longer than this may have to make room; one that is read at once never does.
const PROMPT: Duration = Duration::from_secs(1);

/// All places.
pub(super) struct Places {
    limits: Limits,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

struct Taken {
    /// When the connection began to wait for the head of a request (first of all for the handshake), or its answer began.
    since: Instant,
    /// When the client last took some of its answer; none while a head is waited for.
    answering: Option<Instant>,
    /// Dropped with the entry, which ends the connection.
    _held: oneshot::Sender<()>,
}

/// A connection's place. Clones are the same place.
#[derive(Clone)]
pub(super) struct Place(Arc<Holder>);

struct Holder {
    places: Arc<Places>,
    number: u64,
}

impl Places {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// A place, and what completes when it is lost. If all are taken, the connection that has waited longest for a head
    /// loses its own; if none waits, the one that has been answered longest, unless all are prompt: then there is none.
    pub(super) fn take(self: &Arc<Self>) -> Option<(Place, oneshot::Receiver<()>)> {
        let mut table = self.table();
        let now = Instant::now();
        if table.taken.len() >= self.limits.connections {
            let idlest = table.taken.iter().min_by_key(|(_, taken)| (taken.answering.is_some(), taken.since));
            let (&number, taken) = idlest?;
            if taken.answering.is_some() && now - taken.since < PROMPT {
                return None;
            }
            table.taken.remove(&number);
        }
        let (held, lost) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        table.taken.insert(number, Taken { since: now, answering: None, _held: held });
        Some((Place(Arc::new(Holder { places: Arc::clone(self), number })), lost))
    }

    /// Takes their places from those whose time is over.
    pub(super) fn end_late(&self) {
        let Limits { head, write, answer, .. } = self.limits;
        let now = Instant::now();
        self.table().taken.retain(|_, taken| match taken.answering {
            None => now - taken.since < head,
            Some(took) => now - taken.since < answer && now - took < write,
        });
    }

    /// Takes their places from those that wait for a head.
    pub(super) fn end_waiting(&self) {
        self.table().taken.retain(|_, taken| taken.answering.is_some());
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// The head of a request is here, or the client took some of its answer. Of answers one behind the other, the first
    /// counts.
    pub(super) fn answering(&self) {
        let now = Instant::now();
        self.change(|taken| {
            if taken.answering.replace(now).is_none() {
                taken.since = now;
            }
        });
    }

    /// All answers have gone out.
    pub(super) fn waiting(&self) {
        self.change(|taken| (taken.since, taken.answering) = (Instant::now(), None));
    }

    fn change(&self, change: impl FnOnce(&mut Taken)) {
        if let Some(taken) = self.0.places.table().taken.get_mut(&self.0.number) {
            change(taken);
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.places.table().taken.remove(&self.number);
    }
}
