//! Compares ways to do I/O: how long a program waits beyond the time covered by the kernel's timestamps, and how much CPU time it
//! needs. fio does the I/O, with one engine and queue depth after another on the same device. Run by `cargo xtask bench engines`.

mod fio;
mod table;

use std::{ffi::OsString, fs, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use biolat_collect::collector::Collector;
use biolat_common::series::Phase;
use biolat_model::{device::Selection, histogram::Histogram, snapshot::Snapshot};
use biolat_system::host::Host;
use clap::Parser;

use crate::{
    command::{self, Usual},
    target::Target,
};
use fio::{ENGINES, Engine, Idle, Report};
use table::Row;

const DEPTHS: [u32; 3] = [1, 32, 256];

/// Compare ways to do I/O: how long the program waits, and where the time goes
#[derive(Parser)]
#[command(name = "cargo xtask bench engines", bin_name = "cargo xtask bench engines")]
struct Options {
    /// Block device, or file on one, to read from; by default, a 1 GiB file is created in the build directory
    #[arg(long)]
    path: Option<PathBuf>,
    /// Seconds for each engine and depth
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    #[command(flatten)]
    usual: Usual,
}

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    command::main(arguments, run)
}

fn run(options: &Options) -> Result<()> {
    let target = options.path.clone().map_or_else(Target::scratch, Target::named)?;
    let disk = target.disk()?;
    let selection = Selection::new(Some(&disk), None).map_err(|error| anyhow!("{error:?}"))?;
    let host = Host::default();
    let mut collector = Collector::attach(host, selection, biolat_probe::Options::default())?;
    let idle = Idle::measure()?;
    let mut rows = Vec::new();
    for engine in &ENGINES {
        if engine.polls && !polls(&disk) {
            eprintln!("not run: {}: {disk} has no queues for polling (queue/io_poll)", engine.name);
            continue;
        }
        for depth in DEPTHS.into_iter().filter(|&depth| depth == 1 || !engine.is_synchronous) {
            eprintln!("{} at depth {depth}", engine.name);
            rows.push(measure(&mut collector, engine, depth, &target, options.seconds, &idle)?);
        }
    }
    if options.usual.json {
        println!("{:#}", table::json(&rows, &disk));
    } else {
        print!("{}", table::text(&rows, &disk));
    }
    if options.usual.check { check(&rows) } else { Ok(()) }
}

/// Whether the device can be polled for completions.
fn polls(disk: &str) -> bool {
    fs::read_to_string(format!("/sys/block/{disk}/queue/io_poll")).is_ok_and(|text| text.trim() == "1")
}

fn measure(
    collector: &mut Collector,
    engine: &Engine,
    depth: u32,
    target: &Target,
    seconds: u64,
    idle: &Idle,
) -> Result<Row> {
    let before = reads(&collector.collect()?)?;
    let fio = Report::run(engine, depth, &target.path, Duration::from_secs(seconds), idle)?;
    let after = reads(&collector.collect()?)?;
    let of_phase = |phase: Phase| after[phase as usize].since(&before[phase as usize]);
    let mean = |phase| of_phase(phase).mean();
    Ok(Row {
        engine: engine.name,
        depth,
        requests: of_phase(Phase::Total).count(),
        admission: mean(Phase::Admission),
        queue: mean(Phase::Queue),
        device: mean(Phase::Device),
        total: mean(Phase::Total).context("fio read nothing")?,
        fio,
    })
}

/// The latencies of the device's reads, by phase.
fn reads(snapshot: &Snapshot) -> Result<[Histogram; 4]> {
    let device = snapshot.devices.first().context("the device is gone")?;
    let reads = device.series.iter().find(|series| series.op == "read").context("no reads")?;
    Ok(reads.histograms.clone())
}

/// Bounds so wide that only a bug exceeds them.
fn check(rows: &[Row]) -> Result<()> {
    for Row { engine, depth, total, fio, requests, .. } in rows {
        if *total > fio.total * 1.1 {
            bail!("{engine} at depth {depth}: {total} s in the kernel, but {} s for the program", fio.total);
        }
        if (*requests as f64) < fio.reads as f64 * 0.98 {
            bail!("{engine} at depth {depth}: {requests} requests of {} reads", fio.reads);
        }
    }
    Ok(())
}
