//! Places for connections: so many and no more. A connection has one from its beginning to its end; when its place is
//! given to another one, or it has had its time, it ends.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{oneshot, watch};

use super::Limits;
use crate::net::network;

/// All places.
pub(super) struct Places {
    limits: Limits,
    table: Mutex<Table>,
    /// Set when the server ends.
    ending: watch::Sender<bool>,
}

#[derive(Default)]
struct Table {
    taken: BTreeMap<u64, Taken>,
    next: u64,
}

struct Taken {
    /// Where the connection comes from.
    network: IpAddr,
    /// When it began what it is doing.
    since: Instant,
    /// Since then, or since the client took some of the answer.
    active: Instant,
    doing: Doing,
    /// Whether its answer is a stream, and its last one.
    streams: bool,
    /// Dropped with the entry, which ends the connection.
    _held: oneshot::Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doing {
    /// It waits for a head.
    Waiting,
    /// The answer is in the making: the client has nothing to take yet, and nothing is late by its doing.
    Making,
    /// The answer is on its way.
    Writing,
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
        Arc::new(Self { limits, table: Mutex::default(), ending: watch::Sender::new(false) })
    }

    /// A place, and what completes when it is lost. If all are taken, the network that has the most of them loses one, that
    /// of the connection which has not been active for longest. So who takes many takes them from itself.
    pub(super) fn take(self: &Arc<Self>, from: IpAddr) -> (Place, oneshot::Receiver<()>) {
        let (network, now) = (network(from), Instant::now());
        let mut table = self.table();
        if table.taken.len() >= self.limits.connections {
            table.make_room();
        }
        let (held, lost) = oneshot::channel();
        let number = table.next;
        table.next += 1;
        let taken =
            Taken { network, since: now, active: now, doing: Doing::Waiting, streams: false, _held: held };
        table.taken.insert(number, taken);
        (Place(Arc::new(Holder { places: Arc::clone(self), number })), lost)
    }

    /// Takes their places from those whose time is over.
    pub(super) fn end_late(&self) {
        let Limits { head, write, answer, .. } = self.limits;
        let now = Instant::now();
        self.table().taken.retain(|_, taken| {
            let (whole, next) = match taken.doing {
                Doing::Making => return true,
                // The client waits for the next event.
                Doing::Waiting if taken.streams => return true,
                Doing::Waiting => (head, head),
                // An event is small, and taken as a whole.
                Doing::Writing if taken.streams => (write, write),
                Doing::Writing => (answer, write),
            };
            now - taken.since < whole && now - taken.active < next
        });
    }

    /// Tells streams to end, and takes their places from those that would not: who waits for a head, and streams of which
    /// the client does not take what there is.
    pub(super) fn end(&self) {
        self.ending.send_replace(true);
        self.table().taken.retain(|_, taken| match taken.doing {
            Doing::Waiting => taken.streams,
            Doing::Making => true,
            Doing::Writing => !taken.streams,
        });
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make_room(&mut self) {
        let mut places: HashMap<IpAddr, usize> = HashMap::new();
        for taken in self.taken.values() {
            *places.entry(taken.network).or_default() += 1;
        }
        let idlest =
            self.taken.iter().min_by_key(|(_, taken)| (Reverse(places[&taken.network]), taken.active));
        if let Some((&idlest, _)) = idlest {
            self.taken.remove(&idlest);
        }
    }
}

impl Place {
    /// The head of a request is here. Of answers one behind the other, the first counts.
    pub(super) fn making(&self) {
        self.answering(Doing::Making);
    }

    /// There is some of an answer to take, or the client took some.
    pub(super) fn writing(&self) {
        self.answering(Doing::Writing);
    }

    /// The answer will be a stream; false if there are as many as there may be.
    pub(super) fn streams(&self) -> bool {
        let Holder { places, number } = &*self.0;
        let mut table = places.table();
        let room = table.taken.values().filter(|taken| taken.streams).count() < places.limits.streams;
        if let Some(taken) = table.taken.get_mut(number) {
            taken.streams = room;
        }
        room
    }

    pub(super) fn limits(&self) -> Limits {
        self.0.places.limits
    }

    /// Becomes true when the server ends.
    pub(super) fn ending(&self) -> watch::Receiver<bool> {
        self.0.places.ending.subscribe()
    }

    fn answering(&self, doing: Doing) {
        let now = Instant::now();
        self.change(|taken| {
            if taken.doing < doing {
                (taken.since, taken.doing) = (now, doing);
            }
            taken.active = now;
        });
    }

    /// All answers have gone out.
    pub(super) fn waiting(&self) {
        let now = Instant::now();
        self.change(|taken| (taken.since, taken.active, taken.doing) = (now, now, Doing::Waiting));
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

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use tokio::sync::oneshot::error::TryRecvError;

    use super::{Limits, Places};

    /// A password may take a while, and the client can do nothing about it.
    #[test]
    fn an_answer_in_the_making_is_not_a_slow_reader() {
        let short = Duration::from_millis(20);
        let places = Places::new(Limits { head: short, write: short, answer: short, ..Limits::default() });
        let (place, mut lost) = places.take([127, 0, 0, 1].into());
        place.making();
        sleep(2 * short);
        places.end_late();
        assert_eq!(lost.try_recv(), Err(TryRecvError::Empty), "in the making");
        place.writing();
        // Another request, behind the one whose answer is not taken.
        place.making();
        sleep(2 * short);
        places.end_late();
        assert_eq!(lost.try_recv(), Err(TryRecvError::Closed), "not taken");
    }

    #[test]
    fn a_stream_may_be_silent_and_not_deaf() {
        let short = Duration::from_millis(20);
        let limits = Limits { head: short, write: short, answer: short, streams: 1, ..Limits::default() };
        let places = Places::new(limits);
        let (place, mut lost) = places.take([127, 0, 0, 1].into());
        place.making();
        assert!(place.streams());
        let (other, _lost) = places.take([127, 0, 0, 1].into());
        assert!(!other.streams(), "one too many");
        place.writing();
        place.waiting();
        sleep(2 * short);
        places.end_late();
        assert_eq!(lost.try_recv(), Err(TryRecvError::Empty), "silent");
        place.writing();
        sleep(2 * short);
        places.end_late();
        assert_eq!(lost.try_recv(), Err(TryRecvError::Closed), "not taken");
        assert!(other.streams(), "there is room again");
    }
}
