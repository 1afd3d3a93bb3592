//! The ABI between the probe and the daemon: the layout of every map value and event, the bucket arithmetic, the loss reasons,
//! and the constants in the probe's instructions.

#![no_std]

pub mod bucket;
pub mod constants;
pub mod event;
mod hash;
pub mod inflight;
pub mod kernel;
pub mod lost;
pub mod mark;
pub mod names;
pub mod processes;
pub mod series;
pub mod size;
pub mod slot;
pub mod slow;
pub mod status;
pub mod tags;
pub mod volumes;
pub mod workload;
