//! `biolat` against servers with synthetic figures and files: needs neither the probe nor root.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod command_line;
mod findings;
mod first_try;
mod live;
mod past;
mod saved;
mod slow;
mod support;
