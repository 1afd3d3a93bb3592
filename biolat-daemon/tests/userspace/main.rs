//! Tests that need neither the probe nor root: the command line, the HTTP server, its formats and API, `check` and `report`.
//! `clients` needs other programs and is ignored unless `cargo xtask test` runs it.

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
mod formats;
mod http;
mod properties;
mod reload;
mod report;
#[path = "../support/mod.rs"]
mod support;
