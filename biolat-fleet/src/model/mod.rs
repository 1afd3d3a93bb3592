//! Models a fleet: nodes with drives that do I/O, faults and innocent events, and the snapshots that the daemon would take.
//! `docs/fleet-model.md` explains the model and gives the sources of its figures.
//!
//! Everything is drawn at random from a seed: the load of each drive in a step, then the count of each bucket. No I/O is
//! simulated individually.

pub(crate) mod counters;
pub(crate) mod drive;
pub(crate) mod drive_model;
pub(crate) mod effect;
pub(crate) mod event;
pub(crate) mod fleet;
pub(crate) mod latency;
pub(crate) mod node;
pub(crate) mod noise;
pub(crate) mod scenario;
pub(crate) mod schedule;
pub(crate) mod service;
#[cfg(test)]
mod tests;
pub(crate) mod work;

pub(crate) use event::{DriveName, Event, Kind};
pub(crate) use fleet::Fleet;
pub(crate) use node::Node;
pub(crate) use scenario::Scenario;

/// A random generator that returns the same numbers on every machine.
pub(crate) type Random = rand::rngs::Xoshiro256PlusPlus;
