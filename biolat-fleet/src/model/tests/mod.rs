//! Tests of the model. Their oracles are the formulas of the distributions, and what the real daemon's snapshots have in common.

mod counters;
mod drive_model;
mod drives;
mod effect;
mod fleet;
mod latency;
mod noise;
mod service;
