//! `cargo xtask bench`: runs the benchmarks in `biolat-daemon/benches`.

use anyhow::Result;

use crate::{
    ebpf, fleet,
    process::run,
    static_build::{Architecture, static_cargo},
};

/// What to measure.
#[derive(Clone, Copy, clap::ValueEnum)]
pub(crate) enum Subject {
    /// The probe, per I/O, compared with a minimal probe and other tools
    Probe,
    /// One collection
    Collect,
    /// One scrape, in each format
    Scrape,
    /// I/O engines: sync, libaio, io_uring
    Engines,
    /// Nothing: only build the benchmarks and `biolat-fleet`
    Build,
}

impl Subject {
    /// Returns the benchmark's name.
    const fn name(self) -> Option<&'static str> {
        match self {
            Self::Probe => Some("probe"),
            Self::Collect => Some("collect"),
            Self::Scrape => Some("scrape"),
            Self::Engines => Some("engines"),
            Self::Build => None,
        }
    }
}

pub(crate) fn bench(subject: Subject, flags: &[String]) -> Result<()> {
    let mut command = static_cargo("bench", "biolat-daemon", Architecture::of_host()?)?;
    command.args(["--quiet", "--bench", "benches"]);
    let Some(name) = subject.name() else {
        run(command.arg("--no-run"))?;
        return fleet::build();
    };
    command.args(["--", name]);
    if let Subject::Probe = subject {
        let mut tool = static_cargo("build", "biolat-cli", Architecture::of_host()?)?;
        run(tool.args(["--quiet", "--release", "--bins"]))?;
        command.env("BIOLAT_BENCH_FLOOR", ebpf::build_floor()?);
    }
    run(command.args(flags))
}
