//! The real probe on the real kernel with real devices. `cargo xtask test` runs these, one at a time, where
//! the machine can: they need root, and each module lists there what else it needs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod buckets;
mod counts;
mod disk;
mod hotplug;
mod latency;
mod lifecycle;
mod losses;
mod peers;
mod support;
