//! `cargo xtask test`: runs every test that this machine can run.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    ebpf,
    host::{self, Requirement},
    kernel_results::{self, KernelRun},
    process::{cargo, output, run, show},
    static_build::Architecture,
    suites::{self, CLIENT_TESTS, SUITES, Suite},
    test_results::TestResults,
    vm::TestBinaries,
};

/// Requirements shared by all kernel tests.
pub(crate) const KERNEL_TEST_REQUIREMENTS: [Requirement; 4] =
    [Requirement::RootOrSudo, Requirement::Btf, Requirement::Loop, Requirement::Program("losetup", "mount")];

/// Selects the tests to run.
#[derive(clap::Args)]
pub(crate) struct Tests {
    /// Fail if a requirement is missing
    #[arg(long)]
    strict: bool,
    /// Record the kernel tests' results for the host's kernel in docs/kernel-tests.json and the table in docs/kernels.md. With
    /// FILTER, the other tests' results are kept if they are for the same kernel
    #[arg(long)]
    write: bool,
    /// Run the kernel tests on release builds, as guests do. Building takes a long time, but tests of the page with a day of
    /// history then take a third of the time
    #[arg(long)]
    released: bool,
    /// Run only the user space tests, or only the kernel tests
    #[arg(long, value_enum, value_name = "WHICH")]
    only: Option<Only>,
    /// Run only the kernel tests whose name contains one of these
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Userspace,
    Kernel,
}

impl Tests {
    /// Runs the user space tests, the tests with external clients, then the kernel tests.
    pub(crate) fn run(&self) -> Result<()> {
        let mut unrunnable = Unrunnable::default();
        let outcome = self.run_all(&mut unrunnable);
        unrunnable.print();
        outcome
    }

    fn run_all(&self, unrunnable: &mut Unrunnable) -> Result<()> {
        let has_kernel = self.only != Some(Only::Userspace);
        if !has_kernel && (self.write || self.released || !self.filters.is_empty()) {
            bail!("--only userspace: filters, --released and --write apply only to kernel tests");
        }
        if self.only != Some(Only::Kernel) && self.filters.is_empty() {
            run(&mut cargo(&["test", "--locked"]))?;
            // The probe's pure functions, on the host.
            run(&mut cargo(&["test", "--locked", "--package", "biolat-ebpf"]))?;
            self.run_client_tests(unrunnable)?;
        }
        if has_kernel { self.run_on_kernel(unrunnable) } else { Ok(()) }
    }

    fn run_client_tests(&self, unrunnable: &mut Unrunnable) -> Result<()> {
        let mut command = cargo(&["test", "--locked", "--test", "userspace", "--", "--ignored"]);
        let mut can_run = false;
        for (module, needs) in CLIENT_TESTS {
            match host::missing(*needs) {
                None => {
                    can_run = true;
                    command.arg(format!("{module}::"));
                }
                Some(missing) => unrunnable.add(format!("tests with external clients, {module}"), missing),
            }
        }
        let no_browser = host::missing(suites::BROWSER);
        if let Some(missing) = &no_browser {
            unrunnable.add("tests with external clients, biolat open".to_owned(), missing.clone());
        }
        unrunnable.fail_if_strict(self.strict)?;
        if can_run {
            run(command.env("BIOLAT_TEST_PROMETHEUS", host::tool("bin/prometheus")))?;
        }
        if no_browser.is_none() {
            let mut pages = cargo(&["test", "--locked", "--test", "open", "--", "--ignored"]);
            run(pages.env("BIOLAT_TEST_PYTHON", host::python()))?;
        }
        Ok(())
    }

    fn run_on_kernel(&self, unrunnable: &mut Unrunnable) -> Result<()> {
        // If no kernel test can run, don't build anything: not even the test names are needed.
        if let Some(missing) = host::missing(&KERNEL_TEST_REQUIREMENTS) {
            unrunnable.add("kernel tests".to_owned(), missing);
            if self.write {
                bail!("--write: no kernel test can run here");
            }
            return unrunnable.fail_if_strict(self.strict);
        }
        let build = if self.released { Build::released()? } else { Build::debug()? };
        let HostRun { run, outcome } = run_suites(&build, self.strict, &self.filters, |suite| suite.on_host)?;
        unrunnable.extend(&run.skipped);
        if self.write {
            kernel_results::write([&run], self.filters.is_empty())?;
        }
        outcome
    }
}

/// Tests that cannot run here, each with the reason and the fix.
#[derive(Default)]
struct Unrunnable(Vec<String>);

impl Unrunnable {
    fn add(&mut self, tests: String, missing: String) {
        self.0.push(format!("{tests}: {missing}"));
    }

    /// Adds kernel tests, grouped by suite and reason.
    fn extend(&mut self, skipped: &BTreeMap<String, String>) {
        let mut counts = BTreeMap::new();
        for (test, reason) in skipped {
            *counts.entry((test.split("::").next(), reason)).or_insert(0) += 1;
        }
        for ((suite, reason), count) in counts {
            self.add(format!("kernel tests, {} ({count})", suite.unwrap_or_default()), reason.clone());
        }
    }

    fn fail_if_strict(&self, strict: bool) -> Result<()> {
        if strict && !self.0.is_empty() {
            bail!("tests cannot run here, and --strict requires all of them");
        }
        Ok(())
    }

    /// Prints the list. Called last, so that the list is not overlooked.
    fn print(&self) {
        if !self.0.is_empty() {
            println!("\nnot run because of missing requirements:");
            self.0.iter().for_each(|line| println!("  {line}"));
        }
    }
}

/// A run of kernel tests on the host's kernel.
pub(crate) struct HostRun {
    run: KernelRun,
    /// An error if a test failed.
    pub(crate) outcome: Result<()>,
}

/// A build of the kernel tests and the programs they run.
enum Build {
    /// Unoptimized, with overflow checks.
    Debug,
    /// The same binaries as in guests.
    Released(TestBinaries),
}

impl Build {
    /// Builds the terminal tool. Cargo builds the daemon along with its tests.
    fn debug() -> Result<Self> {
        run(&mut cargo(&["build", "--locked", "--bin", "biolat"]))?;
        Ok(Self::Debug)
    }

    fn released() -> Result<Self> {
        Ok(Self::Released(TestBinaries::build(Architecture::of_host()?)?))
    }

    /// Returns a command that runs the tests on the host.
    fn command(&self, arguments: &[&str]) -> Command {
        match self {
            Self::Debug => {
                let mut command = cargo(&["test", "--locked", "--test", "kernel"]);
                command.args(host::runner()).arg("--").args(arguments);
                command
            }
            Self::Released(built) => {
                let mut command = built.on_host();
                command.args(arguments);
                command
            }
        }
    }
}

/// Runs the tests of the selected suites on the host's kernel, with release builds.
pub(crate) fn released_tests(is_wanted: impl Fn(&Suite) -> bool) -> Result<HostRun> {
    run_suites(&Build::released()?, true, &[], is_wanted)
}

/// Runs the tests of the selected suites on the host's kernel, and lists the suites that cannot run, with their missing
/// requirements. If only a few tests fail, reruns them once: many measure durations, which other load on the CPUs distorts.
fn run_suites(
    build: &Build,
    strict: bool,
    filters: &[String],
    is_wanted: impl Fn(&Suite) -> bool,
) -> Result<HostRun> {
    let list = output(build.command(&["--ignored", "--list"]).arg("--format=terse"))?;
    let tests = suites::parse_test_list(&list)?;
    let selected = |suite: &Suite| suites::select(&tests, filters, |other| other.name == suite.name);
    let (mut runnable, mut missing_here) = (Vec::new(), BTreeMap::new());
    for suite in SUITES.iter().filter(|suite| is_wanted(suite)) {
        let tests = selected(suite);
        if tests.is_empty() {
            continue;
        }
        match host::missing(KERNEL_TEST_REQUIREMENTS.iter().chain(suite.needs)) {
            None => runnable.extend(tests),
            Some(missing) => {
                println!("not run: kernel tests {}: {missing}", suite.name);
                missing_here.extend(tests.into_iter().map(|test| (test.to_owned(), missing.clone())));
            }
        }
    }
    if runnable.is_empty() && missing_here.is_empty() {
        bail!("no kernel test that runs on the host matches: {}", filters.join(", "));
    }
    if strict && !missing_here.is_empty() {
        bail!("{} kernel tests cannot run here, and --strict requires all of them", missing_here.len());
    }
    let mut run = host_run(&fs::read_to_string("/proc/sys/kernel/osrelease")?, missing_here)?;
    let outcome = if runnable.is_empty() { Ok(()) } else { run_with_retry(build, &runnable, &mut run)? };
    Ok(HostRun { run, outcome })
}

fn host_run(release: &str, skipped: BTreeMap<String, String>) -> Result<KernelRun> {
    Ok(KernelRun {
        release: release.trim().to_owned(),
        architecture: Architecture::of_host()?,
        machine: "host",
        passed: BTreeSet::new(),
        skipped,
        failed: BTreeSet::new(),
    })
}

/// Runs these tests and, if only a few fail, reruns the failed ones once. Adds the results to `run`.
fn run_with_retry(build: &Build, tests: &[&str], run: &mut KernelRun) -> Result<Result<()>> {
    let cells = if tests.iter().any(|test| test.starts_with("buckets::")) {
        Some(ebpf::build_cells()?)
    } else {
        None
    };
    let command = || {
        // One test at a time: all of them count the I/O of the same kernel.
        let mut command = build.command(&["--ignored", "--show-output", "--test-threads=1", "--exact"]);
        command.env("BIOLAT_TEST_PYTHON", host::python());
        command.env("BIOLAT_TEST_PROMETHEUS", host::tool("bin/prometheus"));
        command.envs(cells.iter().map(|cells| ("BIOLAT_TEST_CELLS", cells)));
        command
    };
    let (results, mut outcome) = run_tests(&mut command(), tests)?;
    let failed = results.failed.clone();
    let retry = outcome.is_err() && results.are_worth_retrying();
    add_results(run, tests, results);
    if retry {
        let failed: Vec<_> = failed.iter().map(String::as_str).collect();
        println!("running again: {}", failed.join(", "));
        let (results, second) = run_tests(&mut command(), &failed)?;
        add_results(run, &failed, results);
        if second.is_ok() {
            println!("passed when run again: {}", failed.join(", "));
        }
        outcome = second;
    }
    Ok(outcome)
}

/// Adds the results of these tests, replacing any results of an earlier run. A test that did not finish counts as failed.
fn add_results(run: &mut KernelRun, tests: &[&str], results: TestResults) {
    let TestResults { passed, skipped, .. } = results;
    for &test in tests {
        let has_finished = passed.contains(test) || skipped.contains_key(test);
        if has_finished {
            run.failed.remove(test)
        } else {
            run.failed.insert(test.to_owned())
        };
    }
    run.passed.extend(passed);
    run.skipped.extend(skipped);
}

/// Runs tests, prints their output and returns their results. A nonzero exit status is returned as the inner error.
fn run_tests(command: &mut Command, tests: &[&str]) -> Result<(TestResults, Result<()>)> {
    // Only their number is shown: there are hundreds.
    let shown = format!("{} ({} tests)", show(command), tests.len());
    eprintln!("$ {shown}");
    let mut child =
        command.args(tests).stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut results = TestResults::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        results.record(&line);
    }
    let status = child.wait()?;
    Ok((results, if status.success() { Ok(()) } else { Err(anyhow!("{shown}: {status}")) }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Unrunnable, add_results, host_run};
    use crate::test_results::TestResults;

    fn results(lines: &[&str]) -> TestResults {
        let mut results = TestResults::default();
        lines.iter().for_each(|line| results.record(line));
        results
    }

    #[test]
    fn lists_unrunnable_tests_by_suite_and_reason() {
        let skipped = [("page::a", "no chromium"), ("page::b", "no chromium"), ("web::a", "no curl")];
        let mut unrunnable = Unrunnable::default();
        unrunnable.extend(&skipped.map(|(test, reason)| (test.to_owned(), reason.to_owned())).into());
        assert_eq!(unrunnable.0, ["kernel tests, page (2): no chromium", "kernel tests, web (1): no curl"]);
        assert!(unrunnable.fail_if_strict(false).is_ok() && unrunnable.fail_if_strict(true).is_err());
    }

    #[test]
    fn rerun_replaces_failures_and_unfinished_tests_fail() {
        let missing = BTreeMap::from([("web::a".to_owned(), "no curl".to_owned())]);
        let mut run = host_run("6.18.44\n", missing).unwrap();
        let first = ["test api::a ... ok", "test api::b ... FAILED", "test api::c ... FAILED"];
        add_results(&mut run, &["api::a", "api::b", "api::c", "api::d"], results(&first));
        assert_eq!(run.release, "6.18.44");
        assert_eq!(Vec::from_iter(&run.failed), ["api::b", "api::c", "api::d"]);
        let second = [
            "test api::b ... ok",
            "test api::c ... FAILED",
            "test api::d ... ok",
            "---- api::d stdout ----",
            "skipped: no such thing",
        ];
        add_results(&mut run, &["api::b", "api::c", "api::d"], results(&second));
        assert_eq!(Vec::from_iter(&run.passed), ["api::a", "api::b"]);
        assert_eq!(Vec::from_iter(&run.failed), ["api::c"]);
        let skipped: Vec<_> = run.skipped.iter().map(|(test, reason)| (&test[..], &reason[..])).collect();
        assert_eq!(skipped, [("api::d", "no such thing"), ("web::a", "no curl")]);
    }
}
