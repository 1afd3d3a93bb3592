//! `cargo xtask vm`: runs the kernel tests in emulated machines, with other kernels and drives. `cargo xtask test` runs them on
//! the host's kernel.

mod archive;
mod emulator;
mod guest;
mod initramfs;
mod kernels;
mod machine;
mod outcome;
mod platform;
mod programs;

use std::{
    fs,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread,
};

use anyhow::{Context as _, Result, bail};

pub(crate) use archive::debian_mirror;
pub(crate) use initramfs::TestBinaries;
pub(crate) use machine::DRIVE;

use crate::{
    host::Requirement,
    kernel_results,
    process::root,
    static_build::Architecture,
    suites::{self, Extent, Machine, SUITES, Suite},
};
use guest::{Guest, ResultRow};
use kernels::{Kernel, Selection};
use platform::Platform;
use programs::{PROGRAMS, Programs};

/// With fewer tests, guests spend most of their time booting. With more, the last guest runs alone for a long time.
const TESTS_PER_GUEST: usize = 32;

/// Selects the kernels and tests to run.
#[derive(clap::Args)]
pub(crate) struct Matrix {
    /// Fail if a requirement is missing
    #[arg(long)]
    strict: bool,
    /// Architecture of kernels and machines, amd64 or arm64 (default: this machine's)
    #[arg(long, value_name = "ARCHITECTURE")]
    arch: Option<String>,
    /// Boot only this kernel
    #[arg(long, value_name = "VMLINUZ", requires = "modules")]
    kernel: Option<PathBuf>,
    /// Modules directory of that kernel's release, such as /lib/modules/6.12.0
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// Boot only this series of Debian kernels: 5.10, 6.1, 6.12, newest or, for arm64, 6.12-16k
    #[arg(long, value_name = "SERIES", conflicts_with = "kernel")]
    series: Option<String>,
    /// Boot all these series, and run all tests on each, even those that do not depend on the kernel
    #[arg(long, conflicts_with_all = ["kernel", "series"])]
    all: bool,
    /// Run only the tests that verify exact counts and latencies. On the newest kernel for this machine's architecture, instead
    /// run the tests that run neither on the host nor on the other kernels
    #[arg(long, conflicts_with_all = ["all", "write"])]
    short: bool,
    /// Build the tests without running them
    #[arg(long, conflicts_with_all = ["kernel", "all", "short", "write", "jobs", "filters"])]
    no_run: bool,
    /// Record the results in docs/kernel-tests.json and the table in docs/kernels.md. With FILTER, the other tests' results are
    /// kept if they are for the same kernel
    #[arg(long)]
    write: bool,
    /// Do nothing if docs/kernel-tests.json has results of all these kernels, without failures, and the sources that they depend on
    /// have not changed since
    #[arg(long, conflicts_with_all = ["kernel", "all", "write", "filters"])]
    unless_recorded: bool,
    /// Number of guests to run at a time (default: three per two CPUs, because guests often wait)
    #[arg(long, value_name = "NUMBER")]
    jobs: Option<NonZeroUsize>,
    /// Run only the tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

impl Matrix {
    /// Runs the tests and prints a table of results.
    pub(crate) fn run(&self) -> Result<()> {
        let architecture = match &self.arch {
            Some(name) => Architecture::named("--arch", name)?,
            None => Architecture::of_host()?,
        };
        if self.unless_recorded {
            let series = kernels::names(architecture, self.selection())?;
            if kernel_results::are_recorded(architecture, &series)? {
                let kernels = series.join(" and ");
                println!("not run: docs/kernel-tests.json has results of {kernels} for the same sources");
                return Ok(());
            }
        }
        let missing: Vec<_> = self.needs(architecture).filter_map(Requirement::missing).collect();
        let missing: Vec<_> = missing.into_iter().chain(architecture.missing()).collect();
        if !missing.is_empty() {
            println!("not run: tests in emulated machines: {}", missing.join("; "));
            if self.strict {
                bail!("tests in emulated machines cannot run here, and --strict requires them");
            }
            return Ok(());
        }
        if self.no_run {
            return TestBinaries::build(architecture).map(|_| ());
        }
        self.check_tools(architecture)?;
        let folder = root().join("target/vm").join(architecture.name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        // Concurrent runs would share directories.
        let path = folder.join("lock");
        let lock = fs::File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        lock.try_lock().with_context(|| format!("another run of cargo xtask vm holds {}", path.display()))?;
        let kernels = match (&self.kernel, &self.modules) {
            (Some(kernel), Some(modules)) => vec![Kernel::from_files(architecture, kernel, modules)?],
            _ => Kernel::from_debian(architecture, self.selection())?,
        };
        let built = TestBinaries::build(architecture)?;
        let list = built.list()?;
        let tests = suites::parse_test_list(&list)?;
        let programs = initramfs::programs(&folder.join("programs"), &Programs::of(architecture)?)?;
        let (mut guests, mut rows) = (Vec::new(), Vec::new());
        for (number, kernel) in kernels.iter().enumerate() {
            let is_newest = number + 1 == kernels.len();
            let wanted = |suite: &Suite| {
                suite.runs_on(is_newest, self.extent(architecture))
                    && missing_tools(suite, architecture).is_none()
            };
            let (own, unsupported) = self.guests(kernel, &built, &tests, wanted, &programs, &folder)?;
            guests.extend(own);
            rows.extend(unsupported);
        }
        if guests.is_empty() {
            bail!("no selected test runs on the selected kernels: {}", self.filters.join(", "));
        }
        rows.extend(run_in_parallel(guests, self.jobs.map(NonZeroUsize::get))?);
        println!("\n{:<28} {:<9} {:>6} {:>7} {:>6}", "kernel", "machine", "passed", "skipped", "s");
        rows.iter().for_each(ResultRow::print);
        rows.iter().for_each(|row| row.run.print_skipped());
        if self.write {
            kernel_results::write(rows.iter().map(|row| &row.run), self.filters.is_empty())?;
        }
        let failures: Vec<_> = rows.into_iter().filter_map(|row| row.failure).collect();
        if failures.is_empty() { Ok(()) } else { bail!("{}", failures.join("\n")) }
    }

    fn extent(&self, architecture: Architecture) -> Extent {
        if self.short && architecture.is_host() {
            Extent::ComplementHost
        } else if self.short {
            Extent::Exactness
        } else if self.all || self.write {
            Extent::All
        } else {
            Extent::Usual
        }
    }

    fn selection(&self) -> Selection<'_> {
        match &self.series {
            Some(name) => Selection::Named(name),
            None if self.all => Selection::All,
            None => Selection::Default,
        }
    }

    /// Lists the suites that guests cannot run because this machine lacks a tool to copy into them.
    fn check_tools(&self, architecture: Architecture) -> Result<()> {
        let in_guests = SUITES.iter().filter(|suite| !suite.guests.is_empty());
        let mut all_present = true;
        for (suite, missing) in
            in_guests.filter_map(|suite| Some((suite.name, missing_tools(suite, architecture)?)))
        {
            println!("not run: {suite} tests in emulated machines: {missing}");
            // Guests of another architecture never have these tools.
            all_present &= !architecture.is_host();
        }
        if self.strict && !all_present {
            bail!("some tests in emulated machines cannot run here, and --strict requires all of them");
        }
        Ok(())
    }

    /// Returns the requirements for running guests on this host.
    fn needs(&self, architecture: Architecture) -> impl Iterator<Item = Requirement> {
        const ARCHIVE: [(&str, &str); 4] =
            [("apt-get", "apt"), ("apt-cache", "apt"), ("dpkg-deb", "dpkg"), ("depmod", "kmod")];
        let is_host = architecture.is_host();
        let archive = ARCHIVE.into_iter().filter(move |_| self.kernel.is_none() || !is_host);
        let own = PROGRAMS.into_iter().filter(move |_| is_host);
        let user_emulator = Some(architecture.user_emulator).filter(|_| !is_host);
        let programs = [Platform::of(architecture).emulator, ("cpio", "cpio")];
        let programs = programs.into_iter().chain(own).chain(archive).chain(user_emulator);
        programs
            .map(|(program, package)| Requirement::Program(program, package))
            .chain([Requirement::ProbeCompiler])
    }

    /// Returns the guests that run the wanted tests on this kernel, with each emulated machine's tests spread over several
    /// guests. Also returns rows for machines that this kernel does not support.
    fn guests(
        &self,
        kernel: &Kernel,
        built: &TestBinaries,
        tests: &[&str],
        wanted: impl Fn(&Suite) -> bool,
        programs: &[u8],
        folder: &Path,
    ) -> Result<(Vec<Guest>, Vec<ResultRow>)> {
        let modules = initramfs::modules(&folder.join("modules"), kernel)?;
        let (mut guests, mut unsupported) = (Vec::new(), Vec::new());
        for machine in Machine::ALL {
            let names = suites::select(tests, &self.filters, |suite| {
                suite.guests.contains(&machine) && wanted(suite)
            });
            if names.is_empty() {
                continue;
            }
            if let Some(reason) = machine.unsupported(kernel) {
                unsupported.push(ResultRow::of_unsupported(kernel, machine, &names, reason));
                continue;
            }
            let emulator = match machine.emulator(kernel.architecture) {
                Err(error) if !self.strict => {
                    println!("not run: tests in the emulated machine {}: {error:#}", machine.name());
                    continue;
                }
                emulator => emulator?,
            };
            let guests_of_machine = names.len().div_ceil(TESTS_PER_GUEST);
            for first in 0..guests_of_machine {
                // Long tests are next to each other, so deal them out.
                let share: Vec<_> = names.iter().skip(first).step_by(guests_of_machine).copied().collect();
                let own = folder.join(format!("{}-{}-{first}", kernel.release, machine.name()));
                guests.push(Guest::new(
                    machine,
                    &emulator,
                    kernel,
                    &[programs, &modules],
                    built,
                    &share,
                    own,
                )?);
            }
        }
        Ok((guests, unsupported))
    }
}

/// Returns which of a suite's tools this machine lacks, or `None` if it has all. Tools are built only for this machine's
/// architecture.
fn missing_tools(suite: &Suite, architecture: Architecture) -> Option<String> {
    if !architecture.is_host() && suite.has_tools() {
        return Some(format!("its tools are not built for {}", architecture.name));
    }
    suite.missing_tools()
}

/// Runs up to `jobs` guests in parallel, by default three per two CPUs, because guests often wait.
fn run_in_parallel(guests: Vec<Guest>, jobs: Option<usize>) -> Result<Vec<ResultRow>> {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    let workers = jobs.unwrap_or(cpus + cpus.div_ceil(2)).min(guests.len());
    let waiting = Mutex::new(guests.into_iter());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    thread::scope(|scope| {
        let work = || {
            let mut rows = Vec::new();
            while let Some(guest) = next() {
                rows.push(guest.run()?);
            }
            Ok(rows)
        };
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
        let rows = workers.into_iter().map(|worker| match worker.join() {
            Ok(rows) => rows,
            Err(_) => bail!("a thread that runs a guest panicked"),
        });
        Ok(rows.collect::<Result<Vec<_>>>()?.concat())
    })
}

/// Boots the drive image in `folder` with a Debian kernel, and calls `line` with each line from the guest's second serial port
/// until the guest powers off.
pub(crate) fn boot_drive(folder: &Path, mut line: impl FnMut(&str)) -> Result<()> {
    let architecture = Architecture::of_host()?;
    let kernel = Kernel::from_debian(architecture, Selection::Named("6.1"))?;
    let kernel = kernel.into_iter().next().context("no kernel")?;
    let parts = [
        initramfs::programs(&folder.join("programs"), &Programs::of(architecture)?)?,
        initramfs::modules(&folder.join("modules"), &kernel)?,
        initramfs::switch(&folder.join("switch"))?,
    ];
    let initramfs = folder.join("initramfs");
    fs::write(&initramfs, parts.concat()).context("cannot write the initramfs")?;
    let emulator = Machine::Server.emulator(architecture)?;
    Machine::Server.run(&emulator, &kernel, &initramfs, folder, &mut line)?.verdict(&[])
}
