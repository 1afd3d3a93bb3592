//! Measures the cost of a synthetic fleet to a real Prometheus, and how well the rules find its sick drives. Run by
//! `cargo xtask fleet`.

mod alerts;
mod blocks;
mod bounds;
mod detection;
mod dump;
mod duration;
mod folder;
mod generator;
mod history;
mod http;
mod live;
mod messages;
mod model;
mod options;
mod own_metrics;
mod plan;
mod prometheus;
mod queries;
mod recorded;
mod remote;
mod remote_write;
mod report;
mod rule_manager;
mod rules;
mod serve;
mod table;
#[cfg(test)]
mod tests;
mod weeks;

pub use options::Options;
