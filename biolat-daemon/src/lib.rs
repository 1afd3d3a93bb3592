//! The biolat daemon: serves the snapshots from biolat-collect as metrics, as JSON and as a web page.
//!
//! It is a library so that tests and benchmarks can use its parts; `main.rs` only parses options and maps errors to exit codes.

#![deny(unsafe_code)]

pub mod check;
pub mod cli;
pub mod config;
pub mod daemon;
pub mod expose;
pub mod http;
pub mod listen;
mod net;
pub mod option_values;
pub mod shared_options;
pub mod version;
pub mod web_config;
