//! `cargo xtask vm`: the kernel tests on other kernels and on drives that this machine has not, in machines that
//! are emulated; and those that can, on this machine's own kernel.

mod archive;
mod image;
mod machine;
mod outcome;

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

pub(crate) use archive::mirror;
pub(crate) use machine::{DRIVE, Machine};

use crate::{
    folder::make_empty,
    machine::{Need, is_root},
    process::root,
    suites::{self, Suite},
    test,
};
use archive::Kernel;
use image::Built;
use outcome::Limits;

/// How long a guest may be silent, and how long it may take in all.
const LIMITS: Limits = Limits { silence: Duration::from_secs(180), all: Duration::from_secs(900) };

/// What is to be run.
#[derive(clap::Args)]
pub(crate) struct Matrix {
    /// Fail if anything is lacking
    #[arg(long)]
    strict: bool,
    /// Boot this kernel and no other
    #[arg(long, value_name = "VMLINUZ", requires = "modules")]
    kernel: Option<PathBuf>,
    /// The modules of that kernel: the folder of its release, as /lib/modules/6.12.0
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// Only this series of the archive's kernels: 6.1 or 6.12
    #[arg(long, value_name = "SERIES", conflicts_with = "kernel")]
    series: Option<String>,
    /// Run only the tests whose name contains this
    filter: Option<String>,
}

/// A line of the table of what was run.
struct Row {
    kernel: String,
    machine: &'static str,
    passed: usize,
    took: Duration,
    remark: &'static str,
    failure: Option<String>,
}

impl Row {
    fn print(&self) {
        let remark = if self.failure.is_some() { "FAILED" } else { self.remark };
        println!(
            "{:<28} {:<9} {:>6} {:>6.0}  {remark}",
            self.kernel,
            self.machine,
            self.passed,
            self.took.as_secs_f64()
        );
    }
}

impl Matrix {
    /// Runs it, and prints a table of what passed.
    pub(crate) fn run(&self) -> Result<()> {
        let lacking: Vec<_> = self.needs().filter_map(Need::lacking).collect();
        if !lacking.is_empty() {
            println!("not run: tests in emulated machines: {}", lacking.join("; "));
            if self.strict {
                bail!("tests in emulated machines cannot run here, and --strict wants them");
            }
            return Ok(());
        }
        let folder = root().join("target/vm");
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let _lock = lock(&folder)?;
        let kernels = match (&self.kernel, &self.modules) {
            (Some(kernel), Some(modules)) => vec![Kernel::named(kernel, modules)?],
            _ => Kernel::of_the_archive(self.series.as_deref())?,
        };
        let built = Built::build()?;
        let list = built.list()?;
        let tests = suites::tests(&list)?;
        let programs = image::programs(&folder.join("programs"))?;
        let mut rows = Vec::new();
        for kernel in &kernels {
            rows.extend(self.rows_of(kernel, &built, &tests, &programs, &folder)?);
        }
        if self.kernel.is_none() && self.series.is_none() {
            rows.extend(self.own_row(&tests)?);
        }
        if rows.is_empty() {
            bail!("no such test runs on such a kernel: {}", self.filter.as_deref().unwrap_or_default());
        }
        println!("\n{:<28} {:<9} {:>6} {:>6}", "kernel", "machine", "passed", "s");
        rows.iter().for_each(Row::print);
        let failures: Vec<_> = rows.into_iter().filter_map(|row| row.failure).collect();
        if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
    }

    /// What it takes here to run anything there.
    fn needs(&self) -> impl Iterator<Item = Need> {
        const ARCHIVE: [(&str, &str); 4] =
            [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod")];
        let archive = ARCHIVE.into_iter().filter(|_| self.kernel.is_none());
        let programs =
            [machine::EMULATOR, ("cpio", "cpio")].into_iter().chain(image::PROGRAMS).chain(archive);
        programs.map(|(program, package)| Need::Program(program, package)).chain([Need::ProbeCompiler])
    }

    fn rows_of(
        &self,
        kernel: &Kernel,
        built: &Built,
        tests: &[&str],
        programs: &[u8],
        folder: &Path,
    ) -> Result<Vec<Row>> {
        let modules = image::modules(&folder.join("modules"), kernel)?;
        let mut rows = Vec::new();
        for machine in Machine::ALL {
            let names = suites::chosen(tests, self.filter.as_deref(), |suite| suite.there.contains(&machine));
            if names.is_empty() {
                continue;
            }
            if let Some(reason) = machine.refuses(&kernel.release) {
                println!("not run: {} on {}: {reason}", machine.name(), kernel.release);
                continue;
            }
            let tests = image::tests(&folder.join("tests"), built, &names)?;
            let initramfs = [programs, &modules, &tests].concat();
            let run = || boot(machine, kernel, &initramfs, &folder.join("run"), names.len());
            let row = match run()? {
                Boot::Ended(row) => row,
                Boot::Stumbled => match run()? {
                    Boot::Ended(row) => Row { remark: "at the second boot", ..row },
                    Boot::Stumbled => bail!("{}: the emulator cannot run this kernel", kernel.release),
                },
            };
            rows.push(row);
        }
        Ok(rows)
    }

    /// What of the same tests this machine's own kernel and devices allow.
    fn own_row(&self, tests: &[&str]) -> Result<Option<Row>> {
        let filter = self.filter.as_deref();
        let is_shared = |suite: &Suite| suite.here && !suite.there.is_empty();
        if suites::chosen(tests, filter, is_shared).is_empty() {
            return Ok(None);
        }
        if !is_root() {
            println!(
                "not run: tests on this machine's own kernel, as it takes root: cargo xtask test runs them"
            );
            return if self.strict { Err(anyhow::anyhow!("--strict wants them")) } else { Ok(None) };
        }
        let began = Instant::now();
        let outcome = test::on_this_kernel(self.strict, filter, is_shared);
        let left_out = outcome.as_ref().map_or(&[][..], Vec::as_slice);
        let ran = |suite: &Suite| is_shared(suite) && !left_out.contains(&suite.name);
        let passed = if outcome.is_ok() { suites::chosen(tests, filter, ran).len() } else { 0 };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Some(Row {
            kernel: release.trim().to_owned(),
            machine: "this one",
            passed,
            took: began.elapsed(),
            remark: if left_out.is_empty() { "" } else { "not all could be run: see above" },
            failure: outcome.err().map(|error| format!("{}: {error:#}", release.trim())),
        }))
    }
}

/// Boots the system on a drive that stands in a folder, with the oldest of the archive's kernels, and passes on each line
/// that it prints on its second serial line, until it turns itself off.
pub(crate) fn boot_drive(folder: &Path, mut line: impl FnMut(&str)) -> Result<()> {
    let place = root().join("target/vm");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let _lock = lock(&place)?;
    let kernel = Kernel::of_the_archive(Some("6.1"))?.into_iter().next().context("no kernel")?;
    let parts = [
        image::programs(&place.join("programs"))?,
        image::modules(&place.join("modules"), &kernel)?,
        image::switch(&place.join("switch"))?,
    ];
    let initramfs = folder.join("initramfs");
    fs::write(&initramfs, parts.concat()).context("cannot write the initramfs")?;
    Machine::Server.run(&kernel, &initramfs, folder, LIMITS, &mut line)?.verdict(&[])
}

/// Held until the end: two runs would use the same folders.
fn lock(folder: &Path) -> Result<fs::File> {
    let path = folder.join("lock");
    let file = fs::File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
    file.try_lock().with_context(|| format!("another run of cargo xtask vm holds {}", path.display()))?;
    Ok(file)
}

/// How a boot ended.
enum Boot {
    Ended(Row),
    /// Through a fault of the emulator's, before any test had failed.
    Stumbled,
}

fn boot(machine: Machine, kernel: &Kernel, initramfs: &[u8], folder: &Path, tests: usize) -> Result<Boot> {
    make_empty(folder)?;
    let image = folder.join("initramfs");
    fs::write(&image, initramfs).context("cannot write the initramfs")?;
    println!("\n{} {}", kernel.release, machine.name());
    let began = Instant::now();
    let (mut passed, mut failed) = (0, Vec::new());
    let outcome = machine.run(kernel, &image, folder, LIMITS, |line| {
        if let Some(test) = line.strip_prefix("test ") {
            passed += usize::from(test.ends_with(" ... ok"));
            failed.extend(test.strip_suffix(" ... FAILED").map(str::to_owned));
        }
        println!("{:>4} | {line}", began.elapsed().as_secs());
    })?;
    if let Some(fault) = outcome.emulators_fault()
        && failed.is_empty()
    {
        println!("{fault}; it is booted once more; its kernel's log:\n{}", outcome.tail());
        return Ok(Boot::Stumbled);
    }
    let failure = match outcome.verdict(&failed) {
        Err(error) => Some(format!("{error:#}")),
        Ok(()) if passed != tests => Some(format!("{passed} of {tests} tests passed")),
        Ok(()) => None,
    };
    Ok(Boot::Ended(Row {
        failure: failure.map(|failure| format!("{} {}: {failure}", kernel.release, machine.name())),
        kernel: kernel.release.clone(),
        machine: machine.name(),
        passed,
        took: outcome.took,
        remark: "",
    }))
}
