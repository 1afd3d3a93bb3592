//! What the probe and the daemon agree on, and nothing else: the layout of every map, the bucket
//! arithmetic, the reasons for a loss, and the facts of the running kernel that the probe is told.

#![no_std]

pub mod bucket;
pub mod kernel;
pub mod lost;
pub mod series;
pub mod slot;
pub mod status;
