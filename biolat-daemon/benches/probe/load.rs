//! The load: random direct reads of 4 KiB with a queue depth of 64, until it is dropped.

use std::{
    fs::{self, OpenOptions},
    io::{Seek as _, SeekFrom},
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use super::process::Process;
use crate::target::Target;

const BLOCK: u64 = 4096;
const DEPTH: usize = 64;

pub(crate) struct Load {
    target: Target,
    generator: Generator,
}

enum Generator {
    Fio(Process),
    Own(Arc<AtomicBool>, Vec<JoinHandle<()>>),
}

impl Load {
    /// Starts fio if it is installed, otherwise reader threads.
    pub(crate) fn start(target: Target) -> Result<Self> {
        let generator = match Command::new("fio").arg("--version").output() {
            Ok(_) => fio(&target.path)?,
            Err(_) => threads(&target.path)?,
        };
        let mut load = Self { target, generator };
        // Wait for a steady state.
        thread::sleep(Duration::from_secs(2));
        load.check_running()?;
        if load.iops_during(Duration::from_millis(200))? == 0.0 {
            bail!("no read of {} is accounted in the diskstats of its device", load.target.path.display());
        }
        Ok(load)
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.generator {
            Generator::Fio(_) => "fio",
            Generator::Own(..) => "64 threads",
        }
    }

    /// Fails if the load has ended.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        match &mut self.generator {
            Generator::Fio(fio) => match fio.0.try_wait()? {
                Some(status) => bail!("fio ended before the bench did: {status}"),
                None => Ok(()),
            },
            Generator::Own(_, threads) if threads.iter().any(JoinHandle::is_finished) => {
                bail!("a read of {} failed", self.target.path.display())
            }
            Generator::Own(..) => Ok(()),
        }
    }

    /// Reads per second during a window, according to diskstats.
    pub(crate) fn iops_during(&self, window: Duration) -> Result<f64> {
        let (began, before) = (Instant::now(), self.target.reads()?);
        thread::sleep(window);
        Ok((self.target.reads()? - before) as f64 / began.elapsed().as_secs_f64())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if let Generator::Own(stop, threads) = &mut self.generator {
            stop.store(true, Ordering::Relaxed);
            for thread in threads.drain(..) {
                let _ = thread.join();
            }
        }
    }
}

fn fio(path: &Path) -> Result<Generator> {
    let mut command = Command::new("fio");
    command.arg(format!("--filename={}", path.display())).arg(format!("--iodepth={DEPTH}"));
    command.args([
        "--name=load",
        "--readonly",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--ioengine=libaio",
    ]);
    // The bench kills fio; if that fails, fio ends on its own. With --thread there is only one process to kill.
    command.args(["--norandommap", "--time_based", "--runtime=3600", "--thread"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("cannot run fio")?;
    Ok(Generator::Fio(Process(child)))
}

fn threads(path: &Path) -> Result<Generator> {
    let stop = Arc::new(AtomicBool::new(false));
    let open = || {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path);
        file.with_context(|| format!("cannot read {}", path.display()))
    };
    let mut threads = Vec::new();
    for number in 0..DEPTH {
        let (file, stop) = (open()?, Arc::clone(&stop));
        threads.push(thread::spawn(move || read_until(&file, number as u64, &stop)));
    }
    Ok(Generator::Own(stop, threads))
}

/// Ends early if a read fails.
fn read_until(mut file: &fs::File, seed: u64, stop: &AtomicBool) {
    #[repr(align(4096))]
    struct Aligned([u8; BLOCK as usize]);
    let mut buffer = Box::new(Aligned([0; BLOCK as usize]));
    let Ok(size) = file.seek(SeekFrom::End(0)) else { return };
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while !stop.load(Ordering::Relaxed) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if file.read_exact_at(&mut buffer.0, random % (size / BLOCK).max(1) * BLOCK).is_err() {
            return;
        }
    }
}
