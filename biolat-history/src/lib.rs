//! What came in each interval of the last day: of every device and op the latencies at full resolution, bytes, errors, and the
//! slowest I/Os. Made of the collector's snapshots as they are; it has no clock, and knows nothing of probes and formats.
//!
//! An interval is one block of bytes, in which neighbours that are about as long take few bits: a busy drive takes about 170 bytes an op. See
//! `docs/history.md`.

#![deny(unsafe_code)]

mod bits;
mod block;
mod breakdown;
mod cells;
mod delta;
mod file;
mod interval;
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
pub use store::LONG;
pub use store::{HistoryLimits, Store};
