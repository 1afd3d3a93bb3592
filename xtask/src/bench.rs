//! `cargo xtask bench`: what the probe, a pass and a scrape cost. The benches themselves are the daemon's.

use anyhow::Result;

use crate::{
    ebpf,
    process::{run, static_cargo},
};

/// What to measure.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Subject {
    /// One I/O in the probe, beside the least that it could cost and beside other tools
    Probe,
    /// One pass of the collector
    Collect,
    /// One scrape, in each format
    Scrape,
}

pub(crate) fn bench(subject: Subject, flags: &[String]) -> Result<()> {
    let name = match subject {
        Subject::Probe => "probe",
        Subject::Collect => "collect",
        Subject::Scrape => "scrape",
    };
    let mut command = static_cargo("bench");
    command.args(["--quiet", "--bench", name, "--"]);
    if let Subject::Probe = subject {
        command.env("BIOLAT_BENCH_FLOOR", ebpf::build_floor()?);
    }
    run(command.args(flags))
}
