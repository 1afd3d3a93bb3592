//! The I/O of each interval of the last day: latencies at full resolution, bytes and errors by device and op, and the slowest
//! I/Os. It is built from the collector's snapshots alone; it has no clock, and knows nothing about probes or formats.
//!
//! An interval is a packed block in which neighbouring counts of similar length take few bits: about 170 bytes per op of a busy
//! drive. See `docs/history.md`.

#![deny(unsafe_code)]

mod bits;
mod block;
mod breakdown;
mod cells;
mod delta;
mod file;
mod interval;
mod io_names;
mod names;
mod part;
mod quads;
mod selection;
mod shared;
mod sizes;
mod store;
#[cfg(test)]
mod tests;
mod usage;
pub mod worst;

pub use block::add_to_slowest;
pub use file::{FileWriter, Origin};
pub use selection::Selection;
pub use shared::SharedHistory;
pub use store::LONG_INTERVAL;
pub use store::{HistoryLimits, Store};
