//! Fixtures and helpers shared by the tests of several crates.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

pub mod btf;
pub mod generated_docs;
pub mod samples;
mod tree;
mod waiting;

pub use tree::Tree;
pub use waiting::wait_for;
