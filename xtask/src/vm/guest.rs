//! Runs tests in a guest. If the emulator fails, the guest is booted again for the remaining tests. If only a few tests fail,
//! they are rerun once in another boot: a guest's share of CPU time varies, which distorts measurements.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};

use super::{
    emulator::Emulator,
    initramfs::{self, TestBinaries},
    kernels::Kernel,
    outcome::Outcome,
};
use crate::{folder::make_empty, kernel_results::KernelRun, suites::Machine, test_results::TestResults};

/// Number of consecutive boots without a passing test after which an emulator failure fails the run.
const ATTEMPTS: u32 = 3;

/// An emulated machine, a kernel and the tests to run.
pub(super) struct Guest {
    machine: Machine,
    emulator: Emulator,
    kernel: Kernel,
    /// Parts of the initramfs that do not depend on the tests.
    system: Vec<u8>,
    built: TestBinaries,
    tests: Vec<String>,
    folder: PathBuf,
}

/// A row of the result table.
#[derive(Clone)]
pub(super) struct ResultRow {
    /// The results. If the run failed although every test passed, for example because the kernel logged a warning, all tests
    /// count as failed.
    pub(super) run: KernelRun,
    machine: &'static str,
    took: Duration,
    boots: u32,
    /// Tests that were run again.
    retried: Vec<String>,
    pub(super) failure: Option<String>,
}

impl Guest {
    pub(super) fn new(
        machine: Machine,
        emulator: &Emulator,
        kernel: &Kernel,
        system: &[&[u8]],
        built: &TestBinaries,
        tests: &[&str],
        folder: PathBuf,
    ) -> Result<Self> {
        let tests = tests.iter().map(|&test| test.to_owned()).collect();
        make_empty(&folder)?;
        Ok(Self {
            machine,
            emulator: emulator.clone(),
            kernel: kernel.clone(),
            system: system.concat(),
            built: built.clone(),
            tests,
            folder,
        })
    }

    /// Runs all tests, in as many boots as necessary.
    pub(super) fn run(self) -> Result<ResultRow> {
        let began = Instant::now();
        let (mut passed, mut skipped) = (BTreeSet::new(), BTreeMap::new());
        let (mut boots, mut attempts, mut retried) = (0, 0, Vec::new());
        let failure = loop {
            boots += 1;
            let is_left = |test: &&str| !passed.contains(*test) && !skipped.contains_key(*test);
            let left: Vec<_> = self.tests.iter().map(String::as_str).filter(is_left).collect();
            let (outcome, results) = self.boot(&left)?;
            attempts = if results.passed.is_empty() { attempts + 1 } else { 1 };
            skipped.extend(results.skipped.clone());
            passed.extend(results.passed.iter().cloned());
            if retried.is_empty() && results.are_worth_retrying() && outcome.guest_fault().is_none() {
                retried = results.failed;
                println!("{}: running again: {}", self.name(), retried.join(", "));
                continue;
            }
            let Some(fault) = outcome.emulator_fault().filter(|_| results.failed.is_empty()) else {
                break match outcome.verdict(&results.failed) {
                    Err(error) => Some(format!("{error:#}")),
                    Ok(()) if passed.len() + skipped.len() != self.tests.len() => Some(format!(
                        "only {} of {} tests finished",
                        passed.len() + skipped.len(),
                        self.tests.len()
                    )),
                    Ok(()) => None,
                };
            };
            println!("{}: {fault}; the guest's kernel log:\n{}", self.name(), outcome.log_excerpt());
            if attempts == ATTEMPTS {
                break Some(format!(
                    "the emulator failed {ATTEMPTS} times in a row without progress: {fault}"
                ));
            }
            println!("{}: booting again for the tests that have not passed", self.name());
        };
        let did_not_pass = |test: &&String| !passed.contains(*test) && !skipped.contains_key(*test);
        let mut failed: BTreeSet<_> = self.tests.iter().filter(did_not_pass).cloned().collect();
        if failure.is_some() && failed.is_empty() {
            failed.append(&mut passed);
        }
        Ok(ResultRow {
            failure: failure.map(|failure| format!("{}: {failure}", self.name())),
            run: kernel_run(&self.kernel, passed, skipped, failed),
            machine: self.machine.name(),
            took: began.elapsed(),
            boots,
            retried,
        })
    }

    fn name(&self) -> String {
        format!("{} {}", self.kernel.release, self.machine.name())
    }

    /// Boots the guest once, runs these tests and prints the guest's output.
    fn boot(&self, tests: &[&str]) -> Result<(Outcome, TestResults)> {
        let run = self.folder.join("run");
        make_empty(&run)?;
        let tests = initramfs::tests(&self.folder.join("tests"), &self.built, tests)?;
        let image = run.join("initramfs");
        fs::write(&image, [&self.system, &tests[..]].concat()).context("cannot write the initramfs")?;
        let began = Instant::now();
        let mut results = TestResults::default();
        let outcome = self.machine.run(&self.emulator, &self.kernel, &image, &run, |line| {
            results.record(line);
            println!("{} {:>4} | {line}", self.kernel.release, began.elapsed().as_secs());
        })?;
        Ok((outcome, results))
    }
}

impl ResultRow {
    /// Returns a row for a machine that this kernel does not support.
    pub(super) fn of_unsupported(kernel: &Kernel, machine: Machine, tests: &[&str], reason: &str) -> Self {
        let skipped = tests.iter().map(|&test| (test.to_owned(), reason.to_owned())).collect();
        Self {
            run: kernel_run(kernel, BTreeSet::new(), skipped, BTreeSet::new()),
            machine: machine.name(),
            took: Duration::ZERO,
            boots: 1,
            retried: Vec::new(),
            failure: None,
        }
    }

    pub(super) fn print(&self) {
        let remark = match self.boots {
            _ if self.failure.is_some() => "FAILED".to_owned(),
            1 => String::new(),
            _ if !self.retried.is_empty() => format!("passed when run again: {}", self.retried.join(", ")),
            boots => format!("{boots} boots: the emulator failed"),
        };
        println!(
            "{:<28} {:<9} {:>6} {:>7} {:>6.0}  {remark}",
            self.run.release,
            self.machine,
            self.run.passed.len(),
            self.run.skipped.len(),
            self.took.as_secs_f64()
        );
    }
}

fn kernel_run(
    kernel: &Kernel,
    passed: BTreeSet<String>,
    skipped: BTreeMap<String, String>,
    failed: BTreeSet<String>,
) -> KernelRun {
    let (release, architecture) = (kernel.release.clone(), kernel.architecture);
    KernelRun { release, architecture, machine: "emulated", passed, skipped, failed }
}
