//! Response bodies of the latest snapshot: each is encoded once, for the first client that requests it, and kept for the
//! others until the next snapshot.

use std::{
    collections::HashMap,
    io::Write as _,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use flate2::{Compression, write::GzEncoder};
use hyper::body::Bytes;
use tokio::sync::watch;

use super::ServeConfig;
use crate::snapshot::Snapshot;

/// What a body is: the path and the content type.
pub(super) type Representation = (&'static str, &'static str);

/// Bodies of the latest snapshot.
pub(super) struct BodyCache {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    config: ServeConfig,
    current: Mutex<Option<Arc<CachedBodies>>>,
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

impl BodyCache {
    pub(super) fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        Self { snapshots, config, current: Mutex::new(None) }
    }

    /// The latest snapshot; none before the first collection.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    /// Each new snapshot.
    pub(super) fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// The latest snapshot and its body, compressed or not; none before the first collection. Encoding takes some
    /// milliseconds: call it outside of the runtime's own threads.
    pub(super) fn body(
        &self,
        representation: Representation,
        gzip: bool,
        encode: impl FnOnce(&Snapshot, &ServeConfig) -> Vec<u8>,
    ) -> Option<(Arc<Snapshot>, Bytes)> {
        let bodies = self.bodies()?;
        let body = Arc::clone(locked(&bodies.bodies).entry(representation).or_default());
        let plain = body.plain.get_or_init(|| encode(&bodies.snapshot, &self.config).into());
        let body = if gzip { body.gzip.get_or_init(|| compress(plain)) } else { plain };
        Some((Arc::clone(&bodies.snapshot), body.clone()))
    }

    /// The snapshot is read under the lock, so that an older one never replaces a newer one.
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

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}
