//! `cargo xtask test`: every test that this machine can run.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    ebpf,
    machine::{self, Need},
    process::{cargo, output, run},
    suites::{self, SUITES, Suite},
};

/// What all of them need.
pub(crate) const KERNEL: [Need; 4] = [Need::Root, Need::Btf, Need::Loop, Need::Program("losetup", "mount")];

/// What the tests of TLS and passwords are done with.
const CLIENTS: [Need; 3] = [
    Need::Program("curl", "curl"),
    Need::Program("openssl", "openssl"),
    Need::Program("prometheus", "prometheus"),
];

/// Runs unit tests, those with other people's clients, then kernel tests.
pub(crate) fn test(strict: bool, filter: Option<&str>) -> Result<()> {
    if filter.is_none() {
        run(&mut cargo(&["test", "--locked"]))?;
        client_tests(strict)?;
    }
    check_names(filter)?;
    on_this_kernel(strict, filter, |suite| suite.here)
}

fn client_tests(strict: bool) -> Result<()> {
    let Some(lacking) = machine::lacking(&CLIENTS) else {
        let tests =
            ["test", "--locked", "--package", "biolat-daemon", "--test", "userspace", "--", "--ignored"];
        return run(&mut cargo(&tests));
    };
    println!("not run: tests of TLS and passwords: {lacking}");
    if strict {
        bail!("the tests of TLS and passwords cannot run here, and --strict wants them all");
    }
    Ok(())
}

/// Runs the kernel tests of these suites, as far as this machine can; it is told which it cannot.
pub(crate) fn on_this_kernel(
    strict: bool,
    filter: Option<&str>,
    is_wanted: impl Fn(&Suite) -> bool,
) -> Result<()> {
    let (mut runnable, mut others, mut lacking_here) = (Vec::new(), Vec::new(), Vec::new());
    for suite in SUITES {
        if !is_wanted(suite) {
            others.push(suite.name);
            continue;
        }
        match machine::lacking(KERNEL.iter().chain(suite.needs)) {
            None => runnable.push(suite.name),
            Some(lacking) => {
                println!("not run: kernel tests {}: {lacking}", suite.name);
                lacking_here.push(suite.name);
            }
        }
    }
    if strict && !lacking_here.is_empty() {
        bail!("{} kernel suites cannot run here, and --strict wants them all", lacking_here.len());
    }
    if !runnable.is_empty() {
        others.extend(&lacking_here);
        kernel_tests(&runnable, &others, filter)?;
    }
    Ok(())
}

/// Fails if a test would never be run, or if none has the wanted name.
fn check_names(filter: Option<&str>) -> Result<()> {
    let list = output(kernel(&["--ignored", "--list"]).arg("--format=terse"))?;
    let tests = suites::tests(&list)?;
    match filter {
        Some(filter) if !tests.iter().any(|test| test.contains(filter)) => {
            bail!("no kernel test is called {filter}")
        }
        _ => Ok(()),
    }
}

fn kernel(arguments: &[&str]) -> Command {
    let mut command = cargo(&["test", "--locked", "--package", "biolat-daemon", "--test", "kernel"]);
    command.args(machine::runner()).arg("--").args(arguments);
    command
}

/// One at a time: they count I/O of one kernel.
fn kernel_tests(runnable: &[&str], left_out: &[&str], filter: Option<&str>) -> Result<()> {
    let mut command = kernel(&["--ignored", "--test-threads=1"]);
    command.env("BIOLAT_TEST_PYTHON", machine::python());
    command.env("BIOLAT_TEST_PROMETHEUS", machine::tool("bin/prometheus"));
    // Names given together are alternatives; what is skipped is skipped whatever else is said.
    match filter {
        Some(filter) => drop(command.arg(filter)),
        None => drop(command.args(runnable.iter().map(|suite| format!("{suite}::")))),
    }
    command.args(left_out.iter().map(|suite| format!("--skip={suite}::")));
    if runnable.contains(&"buckets") {
        command.env("BIOLAT_TEST_CELLS", ebpf::build_cells()?);
    }
    run(&mut command)
}
