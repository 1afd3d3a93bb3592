//! The API over real sockets, with synthetic snapshots.

mod document;
mod events;
pub(crate) mod history;
mod slow;
mod snapshot;
