//! The subjects of the comparison: no probe, the two programs of the bench, the daemon, and other tools.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use aya::{EbpfLoader, programs::BtfTracePoint};
use biolat_collect::collector::Collector;
use biolat_common::constants::Constants;
use biolat_model::device::Selection;
use biolat_probe::{Options, kernel::Kernel, object};
use biolat_system::host::Host;

use super::{process::Process, programs};

/// A subject of the comparison.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    Nothing,
    /// A program of the bench's own object.
    Own(&'static str),
    /// The daemon with default options.
    Biolat,
    /// The daemon with latencies only, without sizes and workloads.
    LatenciesOnly,
    /// The daemon with the understudy attached, as it is once the kernel has refused to run the probe for a completion.
    WithUnderstudy,
    /// Another build of the daemon, to compare two versions of the probe.
    OtherDaemon(PathBuf),
    /// A tool that traces until it is stopped: biolatency, biotop, biosnoop, `biolat processes`.
    Tool(PathBuf, &'static [&'static str]),
}

/// A running subject; stopped when it is dropped.
pub(crate) struct Running {
    _subject: Box<dyn std::any::Any>,
    /// Its programs.
    pub(crate) programs: BTreeSet<u32>,
}

/// The bench's own object, and the kernel that it is loaded into.
pub(crate) struct Own {
    pub(crate) object: PathBuf,
    pub(crate) kernel: Kernel,
}

impl Subject {
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Nothing => "nothing".to_owned(),
            Self::Own(program) => (*program).to_owned(),
            Self::Biolat => "biolat".to_owned(),
            Self::LatenciesOnly => "biolat, latencies only".to_owned(),
            Self::WithUnderstudy => "biolat, understudy".to_owned(),
            Self::OtherDaemon(path) => path.display().to_string(),
            Self::Tool(path, options) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                [&*name].iter().chain(*options).copied().collect::<Vec<_>>().join(" ")
            }
        }
    }

    /// Starts it and waits until its programs are attached.
    pub(crate) fn start(&self, own: &Own) -> Result<Running> {
        let before = programs::ids()?;
        let subject: Box<dyn std::any::Any> = match self {
            Self::Nothing => Box::new(()),
            Self::Own(program) => own.load(program)?,
            Self::Biolat => daemon(own_build(), &[])?,
            Self::LatenciesOnly => daemon(own_build(), &["--sizes", "off", "--workloads", "off"])?,
            Self::WithUnderstudy => with_understudy()?,
            Self::OtherDaemon(path) => daemon(path, &[])?,
            Self::Tool(path, options) => tool(path, options, &before)?,
        };
        let programs = programs::ids()?.difference(&before).copied().collect();
        Ok(Running { _subject: subject, programs })
    }
}

impl Own {
    fn load(&self, program: &str) -> Result<Box<dyn std::any::Any>> {
        let constants = Constants { kernel: self.kernel.layout, ..Constants::default() };
        let object =
            std::fs::read(&self.object).with_context(|| format!("cannot read {}", self.object.display()))?;
        let mut object = EbpfLoader::new()
            .btf(None)
            .load(&object::relocate(&object, constants)?)
            .with_context(|| format!("cannot load {}", self.object.display()))?;
        let found =
            object.program_mut(program).with_context(|| format!("the bench has no program {program}"))?;
        let found: &mut BtfTracePoint = found.try_into()?;
        found
            .load("block_rq_complete", &self.kernel.tracepoints()?)
            .with_context(|| format!("cannot load {program}"))?;
        found.attach().with_context(|| format!("cannot attach {program}"))?;
        Ok(Box::new(object))
    }
}

/// Attaches the probe with the understudy.
fn with_understudy() -> Result<Box<dyn std::any::Any>> {
    let selection = Selection::default();
    let mut collector = Collector::attach(Host::default(), selection, Options::default())?;
    collector.collect()?;
    let probe = collector.probe_mut();
    probe.add_understudy_counters()?;
    probe.attach_understudy()?;
    Ok(Box::new(collector))
}

fn own_build() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_biolat-daemon"))
}

/// `biolat` of the same build.
pub(crate) fn own_terminal_tool() -> PathBuf {
    own_build().with_file_name("biolat")
}

/// Starts a daemon and waits until it serves.
fn daemon(path: &Path, options: &[&str]) -> Result<Box<dyn std::any::Any>> {
    let mut command = Command::new(path);
    command.args(["--listen", "127.0.0.1:0"]).args(options).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = Process(command.spawn().with_context(|| format!("cannot run {}", path.display()))?);
    let mut log = BufReader::new(process.0.stderr.take().context("the daemon has no log")?).lines();
    let mut lines = Vec::new();
    while let Some(line) = log.next().transpose()? {
        if line.contains("serving") {
            return Ok(Box::new((process, log)));
        }
        lines.push(line);
    }
    bail!("the daemon does not serve: {}", lines.join("; "))
}

/// Starts a tool and waits until it stops loading programs, because it does not report when it is ready.
fn tool(path: &Path, options: &[&str], before: &BTreeSet<u32>) -> Result<Box<dyn std::any::Any>> {
    let mut command = Command::new(path);
    command.args(options).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process(command.spawn().with_context(|| format!("cannot run {}", path.display()))?);
    let began = Instant::now();
    let mut last = 0;
    loop {
        std::thread::sleep(Duration::from_millis(200));
        if let Some(status) = process.0.try_wait()? {
            bail!("{} {} ended: {status}", path.display(), options.join(" "));
        }
        let new = programs::ids()?.difference(before).count();
        if new > 0 && new == last {
            return Ok(Box::new(process));
        }
        if began.elapsed() > Duration::from_secs(20) {
            bail!("{} loads no program", path.display());
        }
        last = new;
    }
}
