//! Tests of everything except the model, which has its own.

mod alerts;
mod detection;
mod duration;
mod own_metrics;
mod queries;
mod recorded;
mod remote_write;
mod rules;
