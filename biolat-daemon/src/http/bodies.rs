//! The bodies of one snapshot: each made once, by the first client that wants it, and kept for the others.

use std::{
    io::Write as _,
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

use flate2::{Compression, write::GzEncoder};
use hyper::body::Bytes;
use tokio::sync::watch;

use super::{ServeConfig, page};
use crate::{
    api,
    expose::{self, Format},
    snapshot::Snapshot,
};

/// What a snapshot is written as.
#[derive(Clone, Copy, Debug)]
pub(super) enum BodyKind {
    /// For Prometheus, in one of its formats.
    Metrics(Format),
    /// As [`api::Snapshot`].
    Json,
    /// For people.
    Page,
}

const BODY_KINDS: usize = Format::ALL.len() + 2;

/// The bodies of the latest snapshot.
pub(super) struct BodyCache {
    snapshots: watch::Receiver<Option<Arc<Snapshot>>>,
    config: ServeConfig,
    current: Mutex<Option<Arc<Bodies>>>,
}

/// The bodies of a snapshot.
struct Bodies {
    snapshot: Arc<Snapshot>,
    encoded: [[OnceLock<Bytes>; 2]; BODY_KINDS],
}

impl BodyCache {
    pub(super) fn new(snapshots: watch::Receiver<Option<Arc<Snapshot>>>, config: ServeConfig) -> Self {
        Self { snapshots, config, current: Mutex::new(None) }
    }

    /// The latest snapshot itself; none before the first pass.
    pub(super) fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshots.borrow().clone()
    }

    /// Each snapshot, as it comes.
    pub(super) fn snapshots(&self) -> watch::Receiver<Option<Arc<Snapshot>>> {
        self.snapshots.clone()
    }

    /// The latest snapshot and its body, compressed or not; none before the first pass. Takes some milliseconds the
    /// first time: not for the runtime's own threads.
    pub(super) fn body(&self, kind: BodyKind, gzip: bool) -> Option<(Arc<Snapshot>, Bytes)> {
        let bodies = self.bodies()?;
        let [plain, compressed] = match kind {
            BodyKind::Metrics(format) => &bodies.encoded[format as usize],
            BodyKind::Json => &bodies.encoded[BODY_KINDS - 1],
            BodyKind::Page => &bodies.encoded[BODY_KINDS - 2],
        };
        let plain = plain.get_or_init(|| self.encode(&bodies.snapshot, kind).into());
        let body = if gzip { compressed.get_or_init(|| compress(plain)) } else { plain };
        Some((Arc::clone(&bodies.snapshot), body.clone()))
    }

    fn encode(&self, snapshot: &Snapshot, kind: BodyKind) -> Vec<u8> {
        let ServeConfig { histograms, host, interval, live } = &self.config;
        match kind {
            BodyKind::Metrics(format) => expose::encode(snapshot, *histograms, format),
            // It has no key that is not a string, and writing to memory does not fail.
            BodyKind::Json => {
                serde_json::to_vec(&api::Snapshot::of(snapshot, host, *interval)).unwrap_or_default()
            }
            BodyKind::Page => page::render(Some(snapshot), *live).into_bytes(),
        }
    }

    /// The snapshot is looked up under the lock, so that an older one never takes a newer one's slot.
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
