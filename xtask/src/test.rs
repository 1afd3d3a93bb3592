//! `cargo xtask test`: every test that this machine can run.

use anyhow::{Result, bail};

use crate::{
    ebpf,
    machine::{self, Need},
    process::{cargo, run},
};

/// Kernel tests by module, with what they need beyond what the others need too.
const SUITES: [(&str, &[Need]); 7] = [
    ("buckets", &[Need::ProbeCompiler]),
    (
        "counts",
        &[
            Need::Program("losetup", "mount"),
            Need::Program("mkfs.ext4", "e2fsprogs"),
            Need::Program("mkfs.xfs", "xfsprogs"),
            Need::Program("findmnt", "util-linux"),
        ],
    ),
    ("latency", &[Need::Program("fio", "fio")]),
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

const KERNEL: [Need; 3] = [Need::Root, Need::Btf, Need::Loop];

/// Runs unit tests, then kernel tests.
pub(crate) fn test(strict: bool, filter: Option<&str>) -> Result<()> {
    if filter.is_none() {
        run(&mut cargo(&["test", "--locked"]))?;
    }
    let mut left_out = Vec::new();
    for (suite, needs) in SUITES {
        let lacking: Vec<_> = KERNEL.iter().chain(needs).filter_map(|need| need.lacking()).collect();
        if lacking.is_empty() {
            kernel_tests(suite, filter)?;
        } else {
            left_out.push(format!("not run: {suite}: {}", lacking.join("; ")));
        }
    }
    for line in &left_out {
        println!("{line}");
    }
    if strict && !left_out.is_empty() {
        bail!(
            "{} of {} kernel suites could not run, and --strict wants them all",
            left_out.len(),
            SUITES.len()
        );
    }
    Ok(())
}

/// One at a time: they count I/O of one kernel.
fn kernel_tests(suite: &str, filter: Option<&str>) -> Result<()> {
    let mut command = cargo(&["test", "--locked", "--package", "biolat-daemon", "--test", "kernel", "--"]);
    command.args(["--ignored", "--test-threads=1"]).env("BIOLAT_TEST_PYTHON", machine::python());
    match filter {
        None => drop(command.arg(format!("{suite}::"))),
        // Names given together are alternatives: what is not of this suite has to be skipped.
        Some(filter) => {
            command.arg(filter);
            for (other, _) in SUITES.iter().filter(|(other, _)| *other != suite) {
                command.arg(format!("--skip={other}::"));
            }
        }
    }
    if suite == "buckets" {
        command.env("BIOLAT_TEST_CELLS", ebpf::build_cells()?);
    }
    run(&mut command)
}
