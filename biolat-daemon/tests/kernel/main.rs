//! The real probe on the real kernel with real devices. `cargo xtask test` runs these, one at a time, where
//! the machine can: they need root, and each module lists there what else it needs.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod admission;
mod api;
mod buckets;
mod check;
mod completions_alert;
mod counts;
mod dashboards;
mod device_churn;
mod disk;
mod drives;
mod failures;
mod faults;
mod findings;
mod hist;
mod history;
mod history_file;
mod hotplug;
mod hung;
mod incidents;
mod inflight;
mod kept_counters;
mod kept_probe;
mod killed_while_hung;
mod known_latency;
mod latency;
mod lifecycle;
mod limits;
mod losses;
mod multipath;
mod multipath_alert;
mod nvme_hotplug;
mod page;
mod page_history;
mod page_resilience;
mod peers;
mod pins;
mod possible_cpus;
mod preemption;
mod requests;
mod restarts;
mod rights;
mod scale;
mod schedulers;
mod series_limits;
mod size_latency;
mod sizes;
mod soak;
mod soak_restarts;
mod stacks;
mod support;
mod systemd;
mod takeover;
mod timeouts;
mod top;
mod unthrottled;
mod web;
mod workloads;
