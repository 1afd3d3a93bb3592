//! Places for connections: so many and no more. A connection has one from its beginning to its end; when its place is
//! given to another one, or it has had its time, it ends.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::oneshot;

use super::{Limits, network};

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
    /// Where the connection comes from.
    network: IpAddr,
    /// When it was accepted, its last answer had gone out, or its present one began.
    since: Instant,
    /// Since then, or since the client took some of the answer.
    active: Instant,
    answering: bool,
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
        table.taken.insert(number, Taken { network, since: now, active: now, answering: false, _held: held });
        (Place(Arc::new(Holder { places: Arc::clone(self), number })), lost)
    }

    /// Takes their places from those whose time is over.
    pub(super) fn end_late(&self) {
        let Limits { head, write, answer, .. } = self.limits;
        let now = Instant::now();
        self.table().taken.retain(|_, taken| {
            let (whole, next) = if taken.answering { (answer, write) } else { (head, head) };
            now - taken.since < whole && now - taken.active < next
        });
    }

    /// Takes their places from those that wait for a head.
    pub(super) fn end_waiting(&self) {
        self.table().taken.retain(|_, taken| taken.answering);
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
    /// The head of a request is here, or the client took some of its answer. Of answers one behind the other, the first
    /// counts.
    pub(super) fn answering(&self) {
        let now = Instant::now();
        self.change(|taken| {
            if !std::mem::replace(&mut taken.answering, true) {
                taken.since = now;
            }
            taken.active = now;
        });
    }

    /// All answers have gone out.
    pub(super) fn waiting(&self) {
        let now = Instant::now();
        self.change(|taken| (taken.since, taken.active, taken.answering) = (now, now, false));
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
