//! `biolat open`: the API returns what is in the file, and the page shows it. `page` needs a browser and is ignored unless `cargo
//! xtask test` runs it.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod api;
#[allow(dead_code, reason = "used less than by the tests of the daemon's page")]
#[path = "../../../biolat-daemon/tests/kernel/support/browser.rs"]
mod browser;
mod command;
mod file;
#[allow(dead_code, reason = "used less than by the tests of the daemon")]
#[path = "../../../biolat-daemon/tests/kernel/support/http.rs"]
mod http;
mod page;
mod server;
