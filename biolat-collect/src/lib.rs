//! Measures: finds the devices, reads the probe's counters and makes snapshots of them. Knows no HTTP, no Prometheus, no
//! terminal.

#![deny(unsafe_code)]

pub mod collector;
pub mod cpus;
pub mod device;
pub mod pins;
pub mod scrapes;
