//! The API over real sockets, with snapshots made by hand: no probe, no right.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod document;
mod events;
#[path = "../server/mod.rs"]
mod server;
mod snapshot;
#[path = "../snapshots/mod.rs"]
mod snapshots;
