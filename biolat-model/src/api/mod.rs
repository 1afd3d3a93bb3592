//! The JSON of `/api/v1`. [`Snapshot`](crate::snapshot::Snapshot) is served as it is; this module adds the slow log and the
//! history.
//!
//! Compatibility within version 1: fields may be added, with `#[serde(default)]`; none is renamed, removed or redefined. Counters
//! only grow while `since` (of a device) or `started` (of everything else) stays the same. Clients take the difference of two
//! snapshots.

mod history;
mod slow;

pub use history::ApiHistory;
pub use slow::ApiSlowLog;

/// API version of these documents.
pub use crate::version::API as VERSION;
