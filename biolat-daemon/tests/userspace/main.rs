//! Tests that need neither the probe nor root: the command line, the HTTP server, its formats and API, and `check`. `clients` and
//! `exemplars` need other programs, so only `cargo xtask test` runs them.

#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails the test")]

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
