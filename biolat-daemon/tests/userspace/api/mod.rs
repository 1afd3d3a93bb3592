//! The API over real sockets, with snapshots made by hand.

mod document;
mod events;
pub(crate) mod history;
mod slow;
mod snapshot;
