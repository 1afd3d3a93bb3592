//! An update from a source of snapshots.

use std::sync::Arc;

use biolat_model::snapshot::Snapshot;

#[derive(Clone, Debug)]
pub enum Update<T = Snapshot> {
    /// A new snapshot, or another document of a new collection. Its counters are cumulative.
    Snapshot(Arc<T>),
    /// A failure that is being retried.
    Retrying(String),
}
