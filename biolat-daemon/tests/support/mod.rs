//! What several test binaries share: a server, snapshots and a history made by hand, certificates, a reader of native histograms,
//! a Prometheus.

#![allow(dead_code, reason = "each test binary uses some of it")]

pub(crate) mod certificates;
pub(crate) mod history;
pub(crate) mod native;
pub(crate) mod prometheus;
pub(crate) mod scraping;
pub(crate) mod server;
pub(crate) mod snapshots;
