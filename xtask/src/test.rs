//! `cargo xtask test`: every test that this machine can run.

use std::process::Command;

use anyhow::{Result, bail};

use crate::{
    ebpf,
    machine::{self, Need},
    process::{cargo, output, run},
};

/// Kernel tests by module, with what they need beyond what the others need too.
const SUITES: [(&str, &[Need]); 8] = [
    ("buckets", &[Need::ProbeCompiler]),
    ("counts", &[Need::Program("mkfs.ext4", "e2fsprogs"), Need::Program("mkfs.xfs", "xfsprogs")]),
    ("disk", &[Need::TemporaryFilesOnDisk]),
    ("latency", &[Need::Program("fio", "fio"), Need::Program("chrt", "util-linux")]),
    ("losses", &[]),
    ("hotplug", &[]),
    ("lifecycle", &[Need::Program("bpftool", "bpftool")]),
    (
        "peers",
        &[
            Need::Program("prometheus", "prometheus"),
            Need::Program("promtool", "prometheus"),
            Need::PythonClient,
        ],
    ),
];

const KERNEL: [Need; 4] = [Need::Root, Need::Btf, Need::Loop, Need::Program("losetup", "mount")];

/// Runs unit tests, then kernel tests.
pub(crate) fn test(strict: bool, filter: Option<&str>) -> Result<()> {
    if filter.is_none() {
        run(&mut cargo(&["test", "--locked"]))?;
    }
    check_names(filter)?;
    let (mut runnable, mut left_out) = (Vec::new(), Vec::new());
    for (suite, needs) in SUITES {
        let lacking: Vec<_> = KERNEL.iter().chain(needs).filter_map(|need| need.lacking()).collect();
        if lacking.is_empty() {
            runnable.push(suite);
        } else {
            println!("not run: kernel tests {suite}: {}", lacking.join("; "));
            left_out.push(suite);
        }
    }
    if strict && !left_out.is_empty() {
        bail!(
            "{} of {} kernel suites cannot run here, and --strict wants them all",
            left_out.len(),
            SUITES.len()
        );
    }
    if runnable.is_empty() { Ok(()) } else { kernel_tests(&runnable, &left_out, filter) }
}

/// Fails if a test's module is not listed above, and would never be run, or if no test has the wanted name.
fn check_names(filter: Option<&str>) -> Result<()> {
    let list = output(kernel(&["--ignored", "--list"]).arg("--format=terse"))?;
    let tests: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    let known = |test: &str| SUITES.iter().any(|(suite, _)| test.starts_with(&format!("{suite}::")));
    if let Some(stray) = tests.iter().find(|test| !known(test)) {
        bail!("{stray}: its module is not in the suites of xtask/src/test.rs");
    }
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
