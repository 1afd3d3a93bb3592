//! Finds the devices, reads the probe's counters and turns them into snapshots. Independent of HTTP, Prometheus and terminals.

#![deny(unsafe_code)]

pub mod collector;
pub mod device;
pub mod pins;
pub mod processes;
mod resettable;
pub mod scrapes;
