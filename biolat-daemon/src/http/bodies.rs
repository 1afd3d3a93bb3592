//! Caches response bodies of the latest snapshot: each is encoded once, on the first request, and shared by all clients until the
//! next snapshot. A slow reader keeps older bodies alive, so the memory of all bodies is counted and limited.

use std::{
    collections::HashMap,
    io::Write as _,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use biolat_model::snapshot::Snapshot;
use biolat_system::c_library;
use flate2::{Compression, write::GzEncoder};
use hyper::body::Bytes;
use tokio::{
    sync::{Notify, Semaphore, watch},
    time::timeout,
};

use super::serve_config::ServeConfig;

/// Identifies a body of a snapshot: path and content type.
pub(super) type Representation = (&'static str, &'static str);

/// Bodies of the latest snapshot.
pub(super) struct BodyCache {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    config: ServeConfig,
    created: Instant,
    current: Mutex<Option<Arc<CachedBodies>>>,
    memory: Arc<BodyMemory>,
    /// Size of the largest body so far.
    largest: AtomicUsize,
    /// Whether bodies of older snapshots have taken a lot of memory since the heap was last trimmed.
    has_grown: AtomicBool,
    /// Allows one encoding at a time, because encoding takes several times the memory of the body.
    pub(super) encoder: Arc<Semaphore>,
}

/// How long a new body waits for memory.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for closed connections to free their bodies before closing more.
const CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

/// A body's address in memory, which identifies it while it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyAddress {
    address: usize,
    pub(super) length: usize,
}

impl BodyAddress {
    pub(super) fn of(body: &[u8]) -> Self {
        Self { address: body.as_ptr().addr(), length: body.len() }
    }
}

/// Memory used by all bodies: the latest snapshot's, and older ones that are still being sent.
#[derive(Default)]
struct BodyMemory {
    bytes: AtomicUsize,
    freed: Notify,
}

impl BodyMemory {
    /// Waits until bodies take at most this many bytes.
    async fn wait_for_at_most(&self, bytes: usize) {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            if self.bytes.load(Relaxed) <= bytes {
                return;
            }
            freed.await;
        }
    }
}

/// Bodies of one snapshot.
struct CachedBodies {
    snapshot: Arc<Snapshot>,
    bodies: Mutex<HashMap<Representation, Arc<CachedBody>>>,
}

#[derive(Default)]
struct CachedBody {
    plain: OnceLock<Bytes>,
    gzip: OnceLock<Bytes>,
}

impl CachedBodies {
    fn addresses(&self) -> Vec<BodyAddress> {
        let bodies = locked(&self.bodies);
        let encoded = bodies.values().flat_map(|body| [body.plain.get(), body.gzip.get()]).flatten();
        encoded.map(|body| BodyAddress::of(body)).collect()
    }
}

/// A body that counts towards [`BodyMemory`] until it is dropped.
struct CountedBytes {
    content: Box<[u8]>,
    memory: Arc<BodyMemory>,
}

impl CountedBytes {
    /// Copies the content. A large copy is mapped separately and returns to the kernel when freed, unlike a buffer that grew in
    /// the heap during encoding.
    fn count(content: &[u8], memory: &Arc<BodyMemory>) -> Bytes {
        memory.bytes.fetch_add(content.len(), Relaxed);
        Bytes::from_owner(Self { content: content.into(), memory: Arc::clone(memory) })
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.memory.bytes.fetch_sub(self.content.len(), Relaxed);
        self.memory.freed.notify_waiters();
    }
}

impl BodyCache {
    pub(super) fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        Self {
            snapshots,
            config,
            created: Instant::now(),
            current: Mutex::new(None),
            memory: Arc::default(),
            largest: AtomicUsize::new(0),
            has_grown: AtomicBool::new(false),
            encoder: Arc::new(Semaphore::new(1)),
        }
    }

    /// Time since the last successful collection or, before the first one, since the server started.
    pub(super) fn age(&self) -> Duration {
        let last_success = self.snapshot().and_then(|snapshot| snapshot.health.last_success);
        last_success.unwrap_or(self.created).elapsed()
    }

    /// Time since the collector last made progress or, before the first collection, since the server started.
    pub(super) fn stalled(&self) -> Duration {
        let stalled = self.snapshot().and_then(|snapshot| snapshot.health.stalled());
        stalled.unwrap_or_else(|| self.created.elapsed())
    }

    pub(super) fn config(&self) -> &ServeConfig {
        &self.config
    }

    /// Time between collections.
    pub(super) fn interval(&self) -> Duration {
        self.config.interval
    }

    /// Waits until the limit leaves room for a new body, plain and compressed, each as large as the largest so far. Meanwhile,
    /// `close_readers` closes connections that read bodies other than the given ones, to free the given number of bytes. Returns
    /// false if there was still no room after a timeout.
    pub(super) async fn wait_for_room(
        &self,
        limit: usize,
        close_readers: impl Fn(&[BodyAddress], usize),
    ) -> bool {
        let room = async {
            loop {
                let latest = self.bodies().map(|bodies| bodies.addresses()).unwrap_or_default();
                let excess = self.excess(limit, latest.iter().map(|body| body.length).sum());
                if excess == 0 {
                    return;
                }
                let target = self.memory.bytes.load(Relaxed).saturating_sub(excess);
                close_readers(&latest, excess);
                // The connections' tasks free the bodies when they end.
                let _ = timeout(CLOSE_TIMEOUT, self.memory.wait_for_at_most(target)).await;
            }
        };
        timeout(ROOM_TIMEOUT, room).await.is_ok()
    }

    /// Returns by how many bytes a new body would exceed the limit. Bodies of the latest snapshot are always allowed.
    fn excess(&self, limit: usize, latest: usize) -> usize {
        let (bytes, new) = (self.memory.bytes.load(Relaxed), 2 * self.largest.load(Relaxed));
        let older = bytes.saturating_sub(latest);
        if older > limit / 4 {
            self.has_grown.store(true, Relaxed);
        } else if older < limit / 16 && self.has_grown.swap(false, Relaxed) {
            c_library::trim_heap();
        }
        (bytes + new).saturating_sub(limit.max(latest + new))
    }

    /// Returns the latest snapshot; `None` before the first collection.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    /// Returns a receiver of new snapshots.
    pub(super) fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// Returns the latest snapshot and its body, if already encoded.
    pub(super) fn encoded(
        &self,
        representation: Representation,
        gzip: bool,
    ) -> Option<(Arc<Snapshot>, Bytes)> {
        let bodies = self.bodies()?;
        let body = locked(&bodies.bodies).get(&representation).cloned()?;
        let bytes = if gzip { body.gzip.get() } else { body.plain.get() };
        Some((Arc::clone(&bodies.snapshot), bytes?.clone()))
    }

    /// Returns the latest snapshot and its body, compressed or not; `None` before the first collection. Encoding takes
    /// milliseconds, so call this on a blocking thread.
    pub(super) fn body(
        &self,
        representation: Representation,
        gzip: bool,
        encode: impl FnOnce(&Snapshot, &ServeConfig) -> Vec<u8>,
    ) -> Option<(Arc<Snapshot>, Bytes)> {
        let bodies = self.bodies()?;
        let body = Arc::clone(locked(&bodies.bodies).entry(representation).or_default());
        let count = |content: Vec<u8>| {
            self.largest.fetch_max(content.len(), Relaxed);
            CountedBytes::count(&content, &self.memory)
        };
        let plain = body.plain.get_or_init(|| count(encode(&bodies.snapshot, &self.config)));
        let body = if gzip { body.gzip.get_or_init(|| count(compress(plain))) } else { plain };
        Some((Arc::clone(&bodies.snapshot), body.clone()))
    }

    /// Returns the bodies of the latest snapshot. Reads the snapshot under the lock, so that an older one never replaces a newer
    /// one.
    fn bodies(&self) -> Option<Arc<CachedBodies>> {
        let mut current = locked(&self.current);
        let snapshot = self.snapshot()?;
        Some(match &*current {
            Some(bodies) if Arc::ptr_eq(&bodies.snapshot, &snapshot) => Arc::clone(bodies),
            _ => Arc::clone(current.insert(Arc::new(CachedBodies { snapshot, bodies: Mutex::default() }))),
        })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
