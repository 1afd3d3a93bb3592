//! `cargo xtask test`: runs every test that this machine can run.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::{
    ebpf,
    host::{self, Requirement},
    process::{cargo, output, run, show},
    suites::{self, SUITES, Suite},
    test_results::TestResults,
};

/// Requirements of all kernel tests.
pub(crate) const KERNEL_TEST_REQUIREMENTS: [Requirement; 4] =
    [Requirement::RootOrSudo, Requirement::Btf, Requirement::Loop, Requirement::Program("losetup", "mount")];

/// Requirements of the tests that use curl, openssl and Prometheus as clients.
const CLIENT_TEST_REQUIREMENTS: [Requirement; 3] = [
    Requirement::Program("curl", "curl"),
    Requirement::Program("openssl", "openssl"),
    Requirement::Program("prometheus", "prometheus"),
];

/// Runs the tests in user space, those with external clients, then the kernel tests.
pub(crate) fn test(strict: bool, filter: Option<&str>) -> Result<()> {
    if filter.is_none() {
        run(&mut cargo(&["test", "--locked"]))?;
        // What the probe decides without the kernel, on the host.
        run(&mut cargo(&["test", "--locked", "--package", "biolat-ebpf"]))?;
        client_tests(strict)?;
    }
    check_names(filter)?;
    run_kernel_suites(strict, filter, |suite| suite.on_host)
}

fn client_tests(strict: bool) -> Result<()> {
    let Some(missing) = host::missing(&CLIENT_TEST_REQUIREMENTS) else {
        let mut command = cargo(&["test", "--locked", "--test", "userspace", "--", "--ignored"]);
        return run(command.env("BIOLAT_TEST_PROMETHEUS", host::tool("bin/prometheus")));
    };
    println!("not run: tests of TLS and passwords: {missing}");
    if strict {
        bail!("the tests of TLS and passwords cannot run here, and --strict requires them");
    }
    Ok(())
}

/// Runs the selected kernel suites on the host's kernel; lists those it cannot run, with the missing requirements.
pub(crate) fn run_kernel_suites(
    strict: bool,
    filter: Option<&str>,
    is_wanted: impl Fn(&Suite) -> bool,
) -> Result<()> {
    let (mut runnable, mut others, mut missing_here) = (Vec::new(), Vec::new(), Vec::new());
    for suite in SUITES {
        if !is_wanted(suite) {
            others.push(suite.name);
            continue;
        }
        match host::missing(KERNEL_TEST_REQUIREMENTS.iter().chain(suite.needs)) {
            None => runnable.push(suite.name),
            Some(missing) => {
                println!("not run: kernel tests {}: {missing}", suite.name);
                missing_here.push(suite.name);
            }
        }
    }
    if strict && !missing_here.is_empty() {
        bail!("{} kernel suites cannot run here, and --strict requires all of them", missing_here.len());
    }
    if !runnable.is_empty() {
        others.extend(&missing_here);
        kernel_tests(&runnable, &others, filter)?;
    }
    Ok(())
}

/// Fails if a test belongs to no listed suite, or if the filter matches no test.
fn check_names(filter: Option<&str>) -> Result<()> {
    let list = output(kernel(&["--ignored", "--list"]).arg("--format=terse"))?;
    let tests = suites::parse_test_list(&list)?;
    match filter {
        Some(filter) if !tests.iter().any(|test| test.contains(filter)) => {
            bail!("no kernel test's name contains {filter}")
        }
        _ => Ok(()),
    }
}

fn kernel(arguments: &[&str]) -> Command {
    let mut command = cargo(&["test", "--locked", "--test", "kernel"]);
    command.args(host::runner()).arg("--").args(arguments);
    command
}

/// Runs these suites. A test that fails is run once more by itself: many measure times, and what else uses the CPUs disturbs
/// them.
fn kernel_tests(runnable: &[&str], skipped: &[&str], filter: Option<&str>) -> Result<()> {
    let cells = if runnable.contains(&"buckets") { Some(ebpf::build_cells()?) } else { None };
    // One test at a time: all count the I/O of the same kernel.
    let one_at_a_time = || {
        let mut command = kernel(&["--ignored", "--test-threads=1"]);
        command.env("BIOLAT_TEST_PYTHON", host::python());
        command.env("BIOLAT_TEST_PROMETHEUS", host::tool("bin/prometheus"));
        command.envs(cells.iter().map(|cells| ("BIOLAT_TEST_CELLS", cells)));
        command
    };
    let mut command = one_at_a_time();
    // The test runner ORs the names, and --skip overrides them.
    match filter {
        Some(filter) => drop(command.arg(filter)),
        None => drop(command.args(runnable.iter().map(|suite| format!("{suite}::")))),
    }
    command.args(skipped.iter().map(|suite| format!("--skip={suite}::")));
    let (results, outcome) = run_tests(&mut command)?;
    if outcome.is_ok() || !results.are_worth_repeating() {
        return outcome;
    }
    let failed = results.failed.join(", ");
    println!("running again: {failed}");
    run_tests(one_at_a_time().arg("--exact").args(&results.failed))?.1?;
    println!("passed when run again: {failed}");
    Ok(())
}

/// Runs tests, prints their output and returns their results. A nonzero exit status is the inner error.
fn run_tests(command: &mut Command) -> Result<(TestResults, Result<()>)> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {shown}"))?;
    let mut results = TestResults::default();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        results.record(&line);
    }
    let status = child.wait()?;
    Ok((results, if status.success() { Ok(()) } else { Err(anyhow!("{shown}: {status}")) }))
}
