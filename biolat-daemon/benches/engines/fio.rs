//! fio, one engine at a time.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};
use biolat_system::c_library::clock_ticks_per_second;
use serde_json::Value;

/// A way to do I/O.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// Options of fio.
    options: &'static [&'static str],
    /// Whether it has only one I/O in flight, whatever the depth.
    pub(crate) is_synchronous: bool,
    /// Whether it polls the device for completions, without interrupts.
    pub(crate) polls: bool,
}

const fn engine(name: &'static str, options: &'static [&'static str]) -> Engine {
    Engine { name, options, is_synchronous: false, polls: false }
}

pub(crate) const ENGINES: [Engine; 6] = [
    Engine { is_synchronous: true, ..engine("sync", &["--ioengine=psync"]) },
    engine("posixaio", &["--ioengine=posixaio"]),
    engine("libaio", &["--ioengine=libaio"]),
    engine("io_uring", &["--ioengine=io_uring"]),
    engine("io_uring, fixed buffers", &["--ioengine=io_uring", "--fixedbufs=1", "--registerfiles=1"]),
    Engine { polls: true, ..engine("io_uring, polling", &["--ioengine=io_uring", "--hipri=1"]) },
];

/// fio's measurements. Times are means in seconds.
pub(crate) struct Report {
    pub(crate) reads: u64,
    pub(crate) iops: f64,
    /// From the start of an I/O to the end of its submission.
    pub(crate) submission: f64,
    /// From the end of its submission until fio saw the completion.
    pub(crate) completion: f64,
    /// From the start until fio saw the completion.
    pub(crate) total: f64,
    /// fio's CPU time per I/O: user and system, all threads.
    pub(crate) cpu: f64,
}

/// fio's CPU time without any I/O: startup and exit.
pub(crate) struct Idle(f64);

impl Idle {
    pub(crate) fn measure() -> Result<Self> {
        let before = children_cpu()?;
        fio(&["--name=nothing", "--ioengine=null", "--size=4k", "--output-format=json"])?;
        Ok(Self(children_cpu()? - before))
    }
}

/// Seconds of CPU time of all child processes that have ended. The CPU time that fio reports leaves out threads created by its
/// engine.
fn children_cpu() -> Result<f64> {
    let stat = fs::read_to_string("/proc/self/stat").context("cannot read /proc/self/stat")?;
    // The fields after the name, which may contain spaces: user and system time of the children are the 14th and 15th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: Vec<f64> = fields.skip(13).take(2).filter_map(|field| field.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok((user + system) / clock_ticks_per_second() as f64),
        _ => bail!("/proc/self/stat has other fields: {stat}"),
    }
}

fn fio(arguments: &[&str]) -> Result<String> {
    let output = Command::new("fio").args(arguments).output().context("cannot run fio (Debian: fio)")?;
    if !output.status.success() {
        bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Report {
    pub(crate) fn run(engine: &Engine, depth: u32, path: &Path, time: Duration, idle: &Idle) -> Result<Self> {
        let always = ["--name=reads", "--rw=randread", "--bs=4k", "--direct=1", "--size=1g", "--time_based"];
        let (file, depth) = (format!("--filename={}", path.display()), format!("--iodepth={depth}"));
        let runtime = format!("--runtime={}", time.as_secs());
        let chosen = ["--norandommap", "--output-format=json", &file, &depth, &runtime];
        let before = children_cpu()?;
        let text = fio(&[&always, engine.options, &chosen].concat())?;
        let cpu = (children_cpu()? - before - idle.0).max(0.0);
        let json = text.find('{').map_or("", |start| &text[start..]);
        let report: Value = serde_json::from_str(json).context("fio printed no JSON")?;
        Self::read(&report["jobs"][0], cpu).context("fio's JSON has other fields")
    }

    fn read(job: &Value, cpu: f64) -> Option<Self> {
        let reads = &job["read"];
        let mean = |kind: &str| Some(reads[kind]["mean"].as_f64()? / 1e9);
        let count = reads["total_ios"].as_u64()?;
        Some(Self {
            reads: count,
            iops: reads["iops"].as_f64()?,
            submission: mean("slat_ns")?,
            completion: mean("clat_ns")?,
            total: mean("lat_ns")?,
            cpu: cpu / count as f64,
        })
    }
}
