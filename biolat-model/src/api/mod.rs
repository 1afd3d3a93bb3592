//! The JSON of `/api/v1`: [`Snapshot`](crate::snapshot::Snapshot) as it is, the slow log and the history with their heads.
//!
//! Version 1: fields may be added, with `#[serde(default)]`; none is renamed, removed or given another meaning. Counters only
//! grow while `since` (of a device) or `started` (of everything else) is the same. Clients use the difference of two snapshots.

mod history;
mod slow;

pub use history::ApiHistory;
pub use slow::ApiSlowLog;

/// The version of these documents.
pub use crate::version::API as VERSION;
