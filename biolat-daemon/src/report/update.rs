//! What a source of snapshots delivers.

use std::sync::Arc;

use crate::api::ApiSnapshot;

#[derive(Clone, Debug)]
pub(super) enum Update {
    /// A new snapshot. Its counters are cumulative: [`Window`](super::window::Window) takes the difference of two.
    Snapshot(Arc<ApiSnapshot>),
    /// A failure that is being retried.
    Retrying(String),
}
