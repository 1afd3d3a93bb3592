//! Tests that need neither the probe nor root: the command line, the HTTP server, its formats and API, and `check`.
//! `clients` and `exemplars` need other programs and are ignored unless `cargo xtask test` runs them.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod abuse;
mod api;
mod check;
mod cli;
mod clients;
mod exemplars;
mod formats;
mod http;
mod properties;
mod reload;
mod series;
#[path = "../support/mod.rs"]
mod support;
