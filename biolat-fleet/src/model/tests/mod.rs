//! Tests of the model against the formulas of the distributions and the invariants of the real daemon's snapshots.

mod counters;
mod drive_model;
mod drives;
mod effect;
mod fleet;
mod latency;
mod noise;
mod service;
