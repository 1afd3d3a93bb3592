//! The biolat daemon. Data flows in one direction:
//!
//! ```text
//! probe ──▶ collect ──▶ snapshot ──▶ expose ──▶ http
//!              ▲
//!            device
//! ```
//!
//! A library, so that tests and benchmarks can use its parts; `main.rs` only parses options and maps errors to exit codes.

#![deny(unsafe_code)]

pub mod api;
pub mod band_histogram;
pub mod c_library;
pub mod cgroup;
pub mod check;
pub mod cli;
pub mod collect;
pub mod config;
mod cpus;
pub mod daemon;
pub mod device;
mod epoch;
pub mod expose;
#[cfg(test)]
mod generated_docs;
pub mod histogram;
pub mod history;
pub mod host;
pub mod http;
mod interval;
pub mod listen;
pub mod log_lines;
mod losses;
mod net;
pub mod passed_fds;
pub mod pins;
pub mod probe;
pub mod process;
pub mod report;
pub mod rights;
pub mod runtime;
mod saturating;
mod scrapes;
mod service_manager;
pub mod shared_options;
mod shell;
pub mod size_histogram;
pub mod snapshot;
mod status;
mod terminal;
mod text;
pub mod version;
pub mod web_config;
mod worst;
