//! A synthetic fleet: how much it costs a real Prometheus, and how well the rules find its sick drives. Run by
//! `cargo xtask fleet`.

pub(crate) mod alerts;
pub(crate) mod blocks;
pub(crate) mod bounds;
pub(crate) mod detection;
pub(crate) mod dump;
pub(crate) mod duration;
pub(crate) mod folder;
pub(crate) mod generator;
pub(crate) mod history;
pub(crate) mod http;
pub(crate) mod live;
pub(crate) mod messages;
pub(crate) mod model;
pub(crate) mod options;
pub(crate) mod own_metrics;
pub(crate) mod plan;
pub(crate) mod prometheus;
pub(crate) mod queries;
pub(crate) mod recorded;
pub(crate) mod remote;
pub(crate) mod remote_write;
pub(crate) mod report;
pub(crate) mod rule_manager;
pub(crate) mod rules;
pub(crate) mod serve;
pub(crate) mod table;
pub(crate) mod weeks;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser as _;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};

use options::Options;

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    let result = Options::parse_from(arguments).plan().and_then(|plan| {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let [mut interrupt, mut terminate] =
                [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?];
            // On a signal all of the run is dropped: its processes and folders, too.
            tokio::select! {
                result = plan.run() => result.map(|()| ExitCode::SUCCESS),
                _ = interrupt.recv() => Ok(ExitCode::from(130)),
                _ = terminate.recv() => Ok(ExitCode::from(143)),
            }
        })
    });
    result.unwrap_or_else(|error: anyhow::Error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
