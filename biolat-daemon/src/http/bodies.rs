//! The bodies of one snapshot: each made once, by the first client that wants it, and kept for the others.

use std::{
    io::Write as _,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use flate2::{Compression, write::GzEncoder};
use hyper::body::Bytes;
use tokio::sync::watch;

use crate::{
    expose::{self, Format, Shape},
    snapshot::Snapshot,
};

/// The bodies of the latest snapshot.
pub(super) struct Latest {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    shape: Shape,
    current: Mutex<Option<Arc<Bodies>>>,
}

/// The bodies of a snapshot.
struct Bodies {
    snapshot: Arc<Snapshot>,
    encoded: [[OnceLock<Bytes>; 2]; Format::ALL.len()],
}

impl Latest {
    pub(super) fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, shape: Shape) -> Self {
        Self { snapshots, shape, current: Mutex::new(None) }
    }

    /// The latest snapshot itself; none before the first pass.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    /// The latest snapshot in a format, compressed or not; none before the first pass. Takes some
    /// milliseconds the first time: not for the runtime's own threads.
    pub(super) fn body(&self, format: Format, gzip: bool) -> Option<Bytes> {
        let bodies = self.bodies()?;
        let [plain, compressed] = &bodies.encoded[format as usize];
        let plain = plain.get_or_init(|| expose::encode(&bodies.snapshot, self.shape, format).into());
        let body = if gzip { compressed.get_or_init(|| compress(plain)) } else { plain };
        Some(body.clone())
    }

    /// The snapshot is looked up under the lock, so that an older one never takes a newer one's place.
    fn bodies(&self) -> Option<Arc<Bodies>> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.snapshot()?;
        Some(match &*current {
            Some(bodies) if Arc::ptr_eq(&bodies.snapshot, &snapshot) => Arc::clone(bodies),
            _ => Arc::clone(current.insert(Arc::new(Bodies { snapshot, encoded: Default::default() }))),
        })
    }
}

fn compress(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}
