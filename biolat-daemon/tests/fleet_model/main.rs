//! Tests of the model that the fleet's benchmark (`cargo xtask fleet`) draws its drives from. Their oracles are the formulas of the
//! distributions, and what the real daemon's snapshots have in common.

#![allow(clippy::unwrap_used, reason = "it is how a test fails")]

#[path = "../../benches/fleet/model/mod.rs"]
mod model;

mod counters;
mod drive_model;
mod drives;
mod effect;
mod fleet;
mod latency;
mod noise;
mod service;
