//! fio, as an oracle for latencies.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use super::{kernel, run};

/// The option for asynchronous I/O.
fn asynchronous() -> &'static str {
    if kernel::allows_io_uring() { "--ioengine=io_uring" } else { "--ioengine=libaio" }
}

/// fio's report on random direct reads.
pub(crate) struct Report(Value);

impl Report {
    /// Reads with these options at real-time priority, so fio runs as soon as its request completes.
    pub(crate) fn of_reads(device: &Path, options: &[&str]) -> Self {
        Self::of("chrt", &[&["--fifo", "1", "fio"], options].concat(), device)
    }

    /// Reads sequentially. fio polls for each completion, so its latencies do not include a wakeup.
    pub(crate) fn of_polled_reads(device: &Path, count: u32) -> Self {
        let size = format!("--io_size={}", u64::from(count) * 4096);
        let polled = ["--bs=4k", asynchronous(), "--iodepth=1", "--iodepth_batch_complete_min=0"];
        Self::of("fio", &[&polled[..], &["--norandommap", &size]].concat(), device)
    }

    /// Random reads through io_uring's polled queues (`IORING_SETUP_IOPOLL`).
    pub(crate) fn of_io_polling_reads(device: &Path, count: u32) -> Self {
        let size = format!("--io_size={}", u64::from(count) * 4096);
        let polling = ["--bs=4k", "--ioengine=io_uring", "--hipri", "--iodepth=8", "--norandommap"];
        Self::of("fio", &[&polling[..], &[&size]].concat(), device)
    }

    fn of(program: &str, arguments: &[&str], device: &Path) -> Self {
        let file = format!("--filename={}", device.display());
        let fixed = ["--name=reads", "--rw=randread", "--direct=1", "--output-format=json", &file];
        let percentiles = ["--lat_percentiles=1", "--clat_percentiles=1"];
        let output = run(program, &[arguments, &fixed, &percentiles].concat());
        Self(serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap())
    }

    /// Returns the median time in seconds from submission until fio saw the completion.
    pub(crate) fn median(&self) -> f64 {
        self.reads()["clat_ns"]["percentile"]["50.000000"].as_f64().unwrap() / 1e9
    }

    pub(crate) fn requests(&self) -> u64 {
        self.reads()["total_ios"].as_u64().unwrap()
    }

    fn reads(&self) -> &Value {
        &self.0["jobs"][0]["read"]
    }
}

/// Writes this many consecutive blocks, sixteen per system call.
pub(crate) fn write_in_batches(device: &Path, blocks: u64) {
    let file = format!("--filename={}", device.display());
    let size = format!("--size={}", blocks * 4096);
    let batches = [asynchronous(), "--iodepth=16", "--iodepth_batch=16", "--iodepth_batch_complete_min=16"];
    run(
        "fio",
        &[&["--name=writes", "--rw=write", "--direct=1", "--bs=4k", &file, &size][..], &batches].concat(),
    );
}

/// Does random reads and writes, 64 at a time, for this long. Returns the longest latency in seconds.
pub(crate) fn longest_churn_latency(device: &Path, seconds: u32) -> f64 {
    let file = format!("--filename={}", device.display());
    let runtime = format!("--runtime={seconds}");
    let deep = ["--ioengine=libaio", "--iodepth=64", "--bs=4k", "--time_based", &runtime];
    let fixed = ["--name=churn", "--rw=randrw", "--direct=1", "--output-format=json", &file];
    let output = run("fio", &[&fixed[..], &deep].concat());
    let report: Value = serde_json::from_str(&output[output.find('{').unwrap()..]).unwrap();
    let longest = ["read", "write"].map(|op| report["jobs"][0][op]["lat_ns"]["max"].as_f64().unwrap());
    longest[0].max(longest[1]) / 1e9
}

/// Random 4 KiB writes at a constant queue depth, until dropped. They stay within 64 MiB, because deleting a file with writes
/// scattered all over it takes a long time on a disk.
pub(crate) struct Writers(Child);

impl Writers {
    pub(crate) fn start(device: &Path, depth: u32) -> Self {
        Self::start_for(device, depth, 60)
    }

    /// Limits the duration, so fio ends even if the test is killed.
    pub(crate) fn start_for(device: &Path, depth: u32, seconds: u32) -> Self {
        let (file, depth) = (format!("--filename={}", device.display()), format!("--iodepth={depth}"));
        let runtime = format!("--runtime={seconds}");
        let timed = ["--time_based", &runtime, "--thread", "--size=64m"];
        let fixed = ["--name=writers", "--rw=randwrite", "--direct=1", "--bs=4k", "--ioengine=libaio"];
        let mut fio = Command::new("fio");
        fio.args(fixed).args(timed).args([file, depth]);
        Self(fio.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
