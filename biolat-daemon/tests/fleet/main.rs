//! Tests of the fleet's benchmark (`cargo xtask fleet`), which has no test harness of its own.

#![allow(clippy::unwrap_used, reason = "it is how a test fails")]

#[allow(dead_code, reason = "only the benchmark runs all of it")]
#[path = "../../benches/fleet/mod.rs"]
mod fleet;

mod alerts;
mod detection;
mod duration;
mod own_metrics;
mod queries;
mod recorded;
mod remote_write;
mod rules;
