//! The load: small reads at random places, many at once, past the page cache, until it is dropped.

use std::{
    fs::{self, OpenOptions},
    io::{Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::process::Process;

const BLOCK: u64 = 4096;
const DEPTH: usize = 64;
const SCRATCH_BYTES: u64 = 1 << 30;

pub(crate) struct Load {
    target: Target,
    generator: Generator,
}

enum Generator {
    Fio(Process),
    Own(Arc<AtomicBool>, Vec<JoinHandle<()>>),
}

/// What is read from: a block device, or a file on one.
pub(crate) struct Target {
    pub(crate) path: PathBuf,
    /// The books of the device below it.
    books: PathBuf,
    /// To be removed.
    is_ours: bool,
}

impl Target {
    /// One that the user named.
    pub(crate) fn named(path: PathBuf) -> Result<Self> {
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let device = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        let books =
            PathBuf::from(format!("/sys/dev/block/{}:{}/stat", libc::major(device), libc::minor(device)));
        if !books.exists() {
            bail!("{} is on no block device: name one, or a file on one, with --path", path.display());
        }
        Ok(Self { path, books, is_ours: false })
    }

    /// A file, where what is built is.
    pub(crate) fn scratch() -> Result<Self> {
        let path = PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/load"));
        let made = (|| {
            let mut file = fs::File::create(&path)?;
            let part = vec![0x5a_u8; 1 << 20];
            for _ in 0..SCRATCH_BYTES >> 20 {
                file.write_all(&part)?;
            }
            file.sync_all()
        })();
        let target = made.with_context(|| format!("cannot make {}", path.display()));
        match target.and_then(|()| Self::named(path.clone())) {
            Ok(mut target) => {
                target.is_ours = true;
                Ok(target)
            }
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err(error)
            }
        }
    }

    fn reads(&self) -> Result<u64> {
        let text = fs::read_to_string(&self.books)
            .with_context(|| format!("cannot read {}", self.books.display()))?;
        let first = text.split_whitespace().next().and_then(|field| field.parse().ok());
        first.with_context(|| format!("{} is not as expected", self.books.display()))
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Load {
    /// fio where it is installed, else threads of our own.
    pub(crate) fn start(target: Target) -> Result<Self> {
        let generator = match Command::new("fio").arg("--version").output() {
            Ok(_) => fio(&target.path)?,
            Err(_) => threads(&target.path)?,
        };
        let mut load = Self { target, generator };
        // Some time to settle.
        thread::sleep(Duration::from_secs(2));
        load.is_there()?;
        if load.iops_during(Duration::from_millis(200))? == 0.0 {
            bail!("no read is in the books of what is below {}", load.target.path.display());
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
    pub(crate) fn is_there(&mut self) -> Result<()> {
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

    /// Reads a second over a while, by the kernel's own books.
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
    // It is ended from here; should that fail, it ends by itself. As a thread it is one process to end.
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
