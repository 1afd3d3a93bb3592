//! fio, one engine at a time.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// A way to do I/O.
pub(crate) struct Engine {
    pub(crate) name: &'static str,
    /// Options of fio.
    options: &'static [&'static str],
    /// Whether it has one I/O at a time, whatever the depth.
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

/// What fio measured. Times are means in seconds.
pub(crate) struct Report {
    pub(crate) reads: u64,
    pub(crate) iops: f64,
    /// From the start of an I/O to the end of its submission.
    pub(crate) submission: f64,
    /// From the end of its submission until fio saw the completion.
    pub(crate) completion: f64,
    /// From the start until fio saw the completion.
    pub(crate) total: f64,
    /// CPU time of fio for one I/O, user and system.
    pub(crate) cpu: f64,
}

impl Report {
    pub(crate) fn run(engine: &Engine, depth: u32, path: &Path, time: Duration) -> Result<Self> {
        let output = Command::new("fio")
            .args(["--name=reads", "--rw=randread", "--bs=4k", "--direct=1", "--size=1g", "--time_based"])
            .args(["--norandommap", "--output-format=json"])
            .args(engine.options)
            .arg(format!("--filename={}", path.display()))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--runtime={}", time.as_secs()))
            .output()
            .context("cannot run fio (Debian: fio)")?;
        if !output.status.success() {
            bail!("fio failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let json = text.find('{').map_or("", |start| &text[start..]);
        let report: Value = serde_json::from_str(json).context("fio printed no JSON")?;
        Self::read(&report["jobs"][0]).context("fio's JSON has other fields")
    }

    fn read(job: &Value) -> Option<Self> {
        let reads = &job["read"];
        let mean = |kind: &str| Some(reads[kind]["mean"].as_f64()? / 1e9);
        let count = reads["total_ios"].as_u64()?;
        let busy = (job["usr_cpu"].as_f64()? + job["sys_cpu"].as_f64()?) / 100.0;
        let seconds = reads["runtime"].as_f64()? / 1e3;
        Some(Self {
            reads: count,
            iops: reads["iops"].as_f64()?,
            submission: mean("slat_ns")?,
            completion: mean("clat_ns")?,
            total: mean("lat_ns")?,
            cpu: busy * seconds / count as f64,
        })
    }
}
