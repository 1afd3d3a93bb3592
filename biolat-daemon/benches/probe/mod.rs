//! The probe's cost per I/O, compared with a minimal probe and with other tools: all take turns under the same load, round after
//! round. Run by `cargo xtask bench probe`.

mod figures;
mod load;
mod process;
mod programs;
mod statistics;
mod subject;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::ExitCode,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use biolat_probe::{kernel::Kernel, kernel_btf};
use biolat_system::host::Host;
use clap::Parser;
use serde_json::json;

use crate::{
    command::{self, Usual},
    target::Target,
};
use figures::{BIOLAT, EMPTY, FLOOR, Figures, NOTHING, Table};
use load::Load;
use subject::{Own, Subject, own_terminal_tool};

/// Compare the cost per I/O of the probe, a minimal probe and other tools
#[derive(Parser)]
#[command(name = "cargo xtask bench probe", bin_name = "cargo xtask bench probe")]
struct Options {
    /// Block device, or file on one, to read from; by default, a 1 GiB file is created in the build directory
    #[arg(long)]
    path: Option<PathBuf>,
    /// Number of turns per subject
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Milliseconds per turn in which IOPS are measured; nanoseconds are measured for half as long
    #[arg(long, default_value_t = 1000, value_name = "MS", value_parser = clap::value_parser!(u64).range(100..))]
    window: u64,
    /// Another daemon to compare with
    #[arg(long, value_name = "FILE")]
    with: Vec<PathBuf>,
    /// Leave other tools out
    #[arg(long, conflicts_with = "check")]
    alone: bool,
    #[command(flatten)]
    usual: Usual,
}

pub(crate) fn main(arguments: &[OsString]) -> ExitCode {
    command::main(arguments, run)
}

fn run(options: &Options) -> Result<()> {
    let object = std::env::var_os("BIOLAT_BENCH_FLOOR").context("run it with: cargo xtask bench probe")?;
    let kernel = Kernel::from_btf(&kernel_btf(&Host::default())?)?;
    let own = Own { object: object.into(), kernel };
    let target = options.path.clone().map_or_else(Target::scratch, Target::named)?;
    let path = target.path.display().to_string();
    let subjects = subjects(options, &own);
    let mut load = Load::start(target)?;
    eprintln!(
        "{} reads 4 KiB at random places of {path}; {} rounds of {}",
        load.name(),
        options.rounds,
        subjects.len()
    );

    let blank = |subject: &Subject| Figures {
        name: subject.name(),
        iops: Vec::new(),
        cost: Vec::new(),
        programs: Vec::new(),
    };
    let mut figures: Vec<_> = subjects.iter().map(blank).collect();
    for round in 0..options.rounds as usize {
        // The first subject rotates, and every other round is in reverse order, so that no subject always follows the same one.
        for turn in 0..subjects.len() {
            let turn = if round % 2 == 0 { turn } else { subjects.len() - turn };
            let number = (round / 2 + turn) % subjects.len();
            let window = Duration::from_millis(options.window);
            take_turn(&subjects[number], &own, &mut load, window, &mut figures[number])
                .with_context(|| subjects[number].name())?;
        }
        eprint!("{}{}", round + 1, if round + 1 == options.rounds as usize { "\n" } else { " " });
    }
    drop(load);

    let table = Table::of(&figures);
    if options.usual.json {
        println!("{:#}", json!({"path": path, "rounds": options.rounds, "subjects": table.to_json()}));
    } else {
        print!("{table}");
    }
    if options.usual.check { check(&table) } else { Ok(()) }
}

fn subjects(options: &Options, own: &Own) -> Vec<Subject> {
    let mut subjects = vec![
        Subject::Nothing,
        Subject::Own(EMPTY),
        Subject::Own(FLOOR),
        Subject::Biolat,
        Subject::LatenciesOnly,
        Subject::WithUnderstudy,
    ];
    subjects.extend(options.with.iter().cloned().map(Subject::OtherDaemon));
    if options.alone {
        return subjects;
    }
    let biolat = own_terminal_tool();
    let tools = [
        Subject::Tool(installed("biolatency"), &[]),
        Subject::Tool(installed("biolatency"), &["-D", "-F"]),
        Subject::Tool(biolat.clone(), &["processes"]),
        Subject::Tool(biolat, &["processes", "--io"]),
        Subject::Tool(installed("biotop"), &[]),
        Subject::Tool(installed("biosnoop"), &[]),
    ];
    // A tool may be missing (Debian: libbpf-tools), or not run on this kernel.
    subjects.extend(tools.into_iter().filter(|tool| match tool.start(own) {
        Ok(_) => true,
        Err(error) => {
            eprintln!("not compared: {error:#}");
            false
        }
    }));
    subjects
}

fn installed(name: &str) -> PathBuf {
    let candidates = ["/usr/sbin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
    let found = candidates.iter().find(|path| path.exists());
    found.unwrap_or(&candidates[0]).clone()
}

/// Measures IOPS first, then nanoseconds with the kernel's statistics on, which cost more than the probe.
fn take_turn(
    subject: &Subject,
    own: &Own,
    load: &mut Load,
    window: Duration,
    figures: &mut Figures,
) -> Result<()> {
    let running = subject.start(own)?;
    thread::sleep(window / 5);
    figures.iops.push(load.iops_during(window)?);
    if !running.programs.is_empty() {
        let statistics = aya::sys::enable_stats(aya::sys::Stats::RunTime)
            .context("cannot turn on the kernel's statistics of BPF programs: requires Linux 5.8 and root")?;
        let before = programs::of(&running.programs)?;
        thread::sleep(window / 2);
        figures.programs = programs::of(&running.programs)?;
        drop(statistics);
        figures.cost.push(programs::cost(&before, &figures.programs).context("its programs did not run")?);
    }
    load.check_running()
}

/// Bounds so wide that only a bug exceeds them.
fn check(table: &Table<'_>) -> Result<()> {
    let biolat = table.row(BIOLAT).context("no row")?;
    let of_floor = biolat.of_floor.context("no ratio")?.median;
    if !(0.5..4.0).contains(&of_floor) {
        bail!("the probe costs {of_floor:.2} times the floor, which is implausible");
    }
    let others =
        table.row("biolatency -D -F").context("--check requires biolatency, which is not installed")?;
    let of_biolat = others.of_biolat.context("no ratio")?.median;
    if of_biolat < 3.0 {
        bail!("biolatency costs {of_biolat:.2} times the probe, which is implausible");
    }
    let nothing = table.row(NOTHING).context("no row")?;
    if !nothing.figures.programs.is_empty() {
        bail!("another process loaded programs meanwhile");
    }
    Ok(())
}
