//! A fixed number of connection slots. A connection holds one from accept to close. It is closed when it is evicted or exceeds
//! a time limit.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{oneshot, watch};

use super::{bodies::BodyAddress, limits::Limits};
use crate::net::network;

/// Number of networks that the server remembers as clients.
const CLIENT_NETWORKS: usize = 32;

/// All slots of the server.
pub(super) struct ConnectionSlots {
    limits: Limits,
    table: Mutex<SlotTable>,
    /// Set when the server shuts down.
    shutting_down: watch::Sender<bool>,
}

#[derive(Default)]
struct SlotTable {
    entries: BTreeMap<u64, SlotEntry>,
    next_id: u64,
    /// Networks that got a successful response, the most recent last.
    clients: VecDeque<IpAddr>,
}

struct SlotEntry {
    /// The client's network.
    network: IpAddr,
    state: ConnectionState,
    /// Start of the current state.
    since: Instant,
    /// Last activity: start of the state, or the last time the client read some of the response.
    last_active: Instant,
    /// Whether a response is being prepared, possibly while an earlier one is still being sent.
    is_preparing: bool,
    /// Whether further parts of the current response are still to be prepared.
    has_more: bool,
    /// Whether the response is an event stream, which is the last response on its connection.
    is_stream: bool,
    /// Body of the response.
    body: Option<BodyAddress>,
    /// Closes the connection when the entry is dropped.
    _close: oneshot::Sender<()>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ConnectionState {
    /// Waiting for a request head.
    Idle,
    /// The server is preparing the response. There is no time limit, because the client has nothing to read yet.
    Preparing,
    /// The response is being sent.
    Sending,
}

/// A connection's slot. Clones refer to the same slot; it is released when the last one is dropped.
#[derive(Clone)]
pub(super) struct ConnectionSlot(Arc<SlotLease>);

struct SlotLease {
    slots: Arc<ConnectionSlots>,
    id: u64,
}

impl ConnectionSlots {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default(), shutting_down: watch::Sender::new(false) })
    }

    /// Returns a slot, and a receiver that completes when the slot is lost. If no slot is free, the network with the most
    /// connections loses the one that has been inactive longest, so a client with many connections only evicts its own. A
    /// connection whose response is being prepared is not inactive. If several networks have the most, unknown ones lose first,
    /// so unknown clients with many addresses do not evict Prometheus.
    pub(super) fn acquire(self: &Arc<Self>, from: IpAddr) -> (ConnectionSlot, oneshot::Receiver<()>) {
        self.acquire_at(from, Instant::now())
    }

    fn acquire_at(self: &Arc<Self>, from: IpAddr, now: Instant) -> (ConnectionSlot, oneshot::Receiver<()>) {
        let mut table = self.table();
        if table.entries.len() >= self.limits.connections {
            table.evict();
        }
        let (close, closed) = oneshot::channel();
        let id = table.next_id;
        table.next_id += 1;
        let entry = SlotEntry {
            network: network(from),
            state: ConnectionState::Idle,
            since: now,
            last_active: now,
            is_preparing: false,
            has_more: false,
            is_stream: false,
            body: None,
            _close: close,
        };
        table.entries.insert(id, entry);
        (ConnectionSlot(Arc::new(SlotLease { slots: Arc::clone(self), id })), closed)
    }

    /// Whether there is a connection.
    pub(super) fn are_in_use(&self) -> bool {
        !self.table().entries.is_empty()
    }

    /// Closes connections that have exceeded a time limit.
    pub(super) fn close_overdue(&self) {
        self.close_overdue_at(Instant::now());
    }

    fn close_overdue_at(&self, now: Instant) {
        let Limits { head, write, answer, .. } = self.limits;
        self.table().entries.retain(|_, entry| {
            let (state_limit, activity_limit) = match entry.state {
                ConnectionState::Preparing => return true,
                // The client is waiting for the next event.
                ConnectionState::Idle if entry.is_stream => return true,
                ConnectionState::Idle => (head, head),
                // An event is small and read at once.
                ConnectionState::Sending if entry.is_stream => (write, write),
                ConnectionState::Sending => (answer, write),
            };
            now - entry.since < state_limit && now - entry.last_active < activity_limit
        });
    }

    /// Ends streams, and closes connections that would not end on their own: idle ones, and streams whose client does not read.
    pub(super) fn shut_down(&self) {
        self.shutting_down.send_replace(true);
        self.table().entries.retain(|_, entry| match entry.state {
            ConnectionState::Idle => entry.is_stream,
            ConnectionState::Preparing => true,
            ConnectionState::Sending => !entry.is_stream,
        });
    }

    /// Closes connections that read bodies other than the latest ones, longest-reading first, until this many bytes are free. A
    /// body is free when no connection reads it.
    fn close_readers(&self, latest: &[BodyAddress], bytes: usize) {
        let mut table = self.table();
        let mut reading: Vec<_> = table
            .entries
            .iter()
            .filter(|(_, entry)| entry.state == ConnectionState::Sending)
            .filter_map(|(&id, entry)| Some((entry.since, id, entry.body?)))
            .filter(|(.., body)| !latest.contains(body))
            .collect();
        reading.sort_unstable_by_key(|&(since, id, _)| (since, id));
        let mut freed = 0;
        for (_, id, body) in reading {
            if freed >= bytes {
                break;
            }
            table.entries.remove(&id);
            if table.entries.values().all(|entry| entry.body != Some(body)) {
                freed += body.length;
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, SlotTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlotTable {
    fn evict(&mut self) {
        let mut connections: HashMap<IpAddr, usize> = HashMap::new();
        for entry in self.entries.values() {
            *connections.entry(entry.network).or_default() += 1;
        }
        let victim = self.entries.iter().min_by_key(|(_, entry)| {
            let is_preparing = entry.state == ConnectionState::Preparing;
            let is_client = self.clients.contains(&entry.network);
            (Reverse(connections[&entry.network]), is_preparing, is_client, entry.last_active)
        });
        if let Some((&victim, _)) = victim {
            self.entries.remove(&victim);
        }
    }

    fn remember_client(&mut self, network: IpAddr) {
        self.clients.retain(|client| *client != network);
        self.clients.push_back(network);
        if self.clients.len() > CLIENT_NETWORKS {
            self.clients.pop_front();
        }
    }
}

impl ConnectionSlot {
    /// Records that a request head has been read. With pipelined requests, the time runs from the first.
    pub(super) fn set_preparing(&self) {
        self.advance(ConnectionState::Preparing, Instant::now());
        self.change(|entry| entry.is_preparing = true);
    }

    /// Records that the response is ready. On success, remembers the client's network.
    pub(super) fn set_prepared(&self, is_success: bool) {
        let SlotLease { slots, id } = &*self.0;
        let mut table = slots.table();
        let Some(entry) = table.entries.get_mut(id) else { return };
        entry.is_preparing = false;
        let network = entry.network;
        if is_success {
            table.remember_client(network);
        }
    }

    /// Records that a part of the response is ready to be sent, or that the client has read some of it.
    pub(super) fn set_sending(&self) {
        self.advance(ConnectionState::Sending, Instant::now());
    }

    /// Records that everything so far has been sent.
    pub(super) fn set_idle(&self) {
        self.set_idle_at(Instant::now());
    }

    /// Records that the body is prepared in parts, as the client reads, until the returned guard is dropped.
    pub(super) fn begin_parts(&self) -> PendingParts {
        self.change(|entry| entry.has_more = true);
        PendingParts(self.clone())
    }

    /// Makes the connection an event stream. Returns false if there are too many streams already.
    pub(super) fn become_stream(&self) -> bool {
        let SlotLease { slots, id } = &*self.0;
        let mut table = slots.table();
        let is_free = table.entries.values().filter(|entry| entry.is_stream).count() < slots.limits.streams;
        if let Some(entry) = table.entries.get_mut(id) {
            entry.is_stream = is_free;
        }
        is_free
    }

    /// Whether a response other than a stream is being prepared or sent.
    pub(super) fn is_responding(&self) -> bool {
        let SlotLease { slots, id } = &*self.0;
        let is_responding = |entry: &SlotEntry| entry.state != ConnectionState::Idle && !entry.is_stream;
        slots.table().entries.get(id).is_some_and(is_responding)
    }

    pub(super) fn set_body(&self, body: BodyAddress) {
        self.change(|entry| entry.body = Some(body));
    }

    /// See [`ConnectionSlots::close_readers`].
    pub(super) fn close_readers(&self, latest: &[BodyAddress], bytes: usize) {
        self.0.slots.close_readers(latest, bytes);
    }

    pub(super) fn limits(&self) -> Limits {
        self.0.slots.limits
    }

    /// Returns a receiver that becomes true when the server shuts down.
    pub(super) fn shutting_down(&self) -> watch::Receiver<bool> {
        self.0.slots.shutting_down.subscribe()
    }

    fn advance(&self, state: ConnectionState, now: Instant) {
        self.change(|entry| {
            if entry.state < state {
                (entry.since, entry.state) = (now, state);
            }
            entry.last_active = now;
        });
    }

    fn set_idle_at(&self, now: Instant) {
        self.change(|entry| {
            let is_preparing = entry.is_preparing || entry.has_more;
            let state = if is_preparing { ConnectionState::Preparing } else { ConnectionState::Idle };
            (entry.since, entry.last_active, entry.state, entry.body) = (now, now, state, None);
        });
    }

    fn change(&self, change: impl FnOnce(&mut SlotEntry)) {
        if let Some(entry) = self.0.slots.table().entries.get_mut(&self.0.id) {
            change(entry);
        }
    }
}

/// See [`ConnectionSlot::begin_parts`].
pub(super) struct PendingParts(ConnectionSlot);

impl Drop for PendingParts {
    fn drop(&mut self) {
        self.0.change(|entry| entry.has_more = false);
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.slots.table().entries.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::{IpAddr, Ipv4Addr},
        time::{Duration, Instant},
    };

    use tokio::sync::oneshot::error::TryRecvError;

    use super::{BodyAddress, ConnectionSlots, ConnectionState, Limits};

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const LIMIT: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        Limits { head: LIMIT, write: LIMIT, answer: LIMIT, streams: 1, ..Limits::default() }
    }

    /// A password check can take a while, which is not the client's fault.
    #[test]
    fn preparing_a_response_has_no_time_limit() {
        let slots = ConnectionSlots::new(limits());
        let start = Instant::now();
        let (slot, mut closed) = slots.acquire_at(CLIENT, start);
        slot.advance(ConnectionState::Preparing, start);
        slots.close_overdue_at(start + 100 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty), "preparing");
        let sending = start + 100 * LIMIT;
        slot.advance(ConnectionState::Sending, sending);
        // A pipelined request, while the client is not reading the first response.
        slot.advance(ConnectionState::Preparing, sending);
        slots.close_overdue_at(sending + LIMIT / 2);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty), "within the limit");
        slots.close_overdue_at(sending + LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Closed), "response not read");
    }

    /// Between two parts of a body the client has nothing to read: the encoder may be busy with other responses.
    #[test]
    fn response_in_parts_is_not_idle_between_them() {
        let slots = ConnectionSlots::new(limits());
        let start = Instant::now();
        let (slot, mut closed) = slots.acquire_at(CLIENT, start);
        slot.advance(ConnectionState::Preparing, start);
        let parts = slot.begin_parts();
        slot.advance(ConnectionState::Sending, start);
        slot.set_idle_at(start);
        assert!(slot.is_responding());
        slots.close_overdue_at(start + 100 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty), "in between");
        slot.advance(ConnectionState::Sending, start + 100 * LIMIT);
        drop(parts);
        slot.set_idle_at(start + 100 * LIMIT);
        assert!(!slot.is_responding());
        slots.close_overdue_at(start + 101 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Closed), "no other request");
    }

    #[test]
    fn keeps_idle_streams_and_closes_unread_ones() {
        let slots = ConnectionSlots::new(limits());
        let start = Instant::now();
        let (slot, mut closed) = slots.acquire_at(CLIENT, start);
        slot.advance(ConnectionState::Preparing, start);
        assert!(slot.become_stream());
        let (other, _closed) = slots.acquire_at(CLIENT, start + 200 * LIMIT);
        assert!(!other.become_stream(), "one stream too many");
        slot.advance(ConnectionState::Sending, start);
        slot.set_idle_at(start);
        slots.close_overdue_at(start + 100 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty), "idle");
        slot.advance(ConnectionState::Sending, start + 100 * LIMIT);
        slots.close_overdue_at(start + 101 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Closed), "event not read");
        assert!(other.become_stream(), "a stream slot is free again");
    }

    #[test]
    fn closes_longest_readers_to_free_bodies() {
        let slots = ConnectionSlots::new(limits());
        let start = Instant::now();
        let bodies = [vec![0; 1000], vec![0; 1000], vec![0; 1000]];
        let address = |body: usize| BodyAddress::of(&bodies[body]);
        let mut connections: Vec<_> = [2, 0, 0, 1]
            .into_iter()
            .enumerate()
            .map(|(order, body)| {
                let (slot, closed) = slots.acquire_at(CLIENT, start);
                slot.set_body(address(body));
                slot.advance(ConnectionState::Sending, start + order as u32 * LIMIT);
                (slot, closed)
            })
            .collect();
        let (preparing, mut is_preparing) = slots.acquire_at(CLIENT, start);
        preparing.set_body(address(1));
        preparing.close_readers(&[address(2)], 0);
        assert!(connections.iter_mut().all(|(_, closed)| closed.try_recv() == Err(TryRecvError::Empty)));
        // To free one byte, the old body with the longest-running readers is freed: both of its readers are closed.
        preparing.close_readers(&[address(2)], 1);
        let closed = connections.iter_mut().map(|(_, closed)| closed.try_recv() == Err(TryRecvError::Closed));
        assert_eq!(closed.collect::<Vec<_>>(), [false, true, true, false]);
        assert_eq!(is_preparing.try_recv(), Err(TryRecvError::Empty));
    }

    #[test]
    fn strangers_do_not_evict_a_client() {
        let limits = Limits { connections: 4, ..limits() };
        let slots = ConnectionSlots::new(limits);
        let start = Instant::now();
        let (slot, _closed) = slots.acquire_at(CLIENT, start);
        slot.set_prepared(true);
        drop(slot);
        let (_again, mut closed) = slots.acquire_at(CLIENT, start);
        let strangers: Vec<_> = (1..=20)
            .map(|number| {
                let (slot, closed) = slots.acquire_at(Ipv4Addr::new(192, 0, 2, number).into(), start + LIMIT);
                slot.set_prepared(false);
                (slot, closed)
            })
            .collect();
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty));
        // With two connections, the client has more than any unknown network.
        let (_second, _closed) = slots.acquire_at(CLIENT, start + 2 * LIMIT);
        let (_stranger, _closed) = slots.acquire_at(Ipv4Addr::new(192, 0, 2, 99).into(), start + 2 * LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Closed));
        drop(strangers);
    }

    #[test]
    fn closes_idle_connections() {
        let slots = ConnectionSlots::new(limits());
        let start = Instant::now();
        let (_slot, mut closed) = slots.acquire_at(CLIENT, start);
        slots.close_overdue_at(start + LIMIT / 2);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Empty));
        slots.close_overdue_at(start + LIMIT);
        assert_eq!(closed.try_recv(), Err(TryRecvError::Closed));
    }
}
