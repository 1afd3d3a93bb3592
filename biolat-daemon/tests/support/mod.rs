//! Fixtures shared by several test binaries: a server, synthetic snapshots and history, certificates, a decoder for native
//! histograms and a Prometheus server.

#![allow(dead_code, reason = "each test binary uses only part of it")]

pub(crate) mod certificates;
pub(crate) mod history;
pub(crate) mod native;
pub(crate) mod prometheus;
pub(crate) mod scraping;
pub(crate) mod server;
pub(crate) mod snapshots;
