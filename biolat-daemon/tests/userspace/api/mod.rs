//! The API over real sockets, with snapshots made by hand.

mod document;
mod events;
mod slow;
mod snapshot;
