//! Checks the dashboards: that they match their source, and that each query returns the expected result for synthetic drives and
//! some data from a real Prometheus that scrapes a daemon.

use anyhow::Result;

use crate::{
    host::{self, Requirement, tool},
    process::{command, root, run},
    test,
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::PythonPackage("grafana_foundation_sdk", "'grafana-foundation-sdk==1769699379!11.6.0'"),
    Requirement::Program("prometheus", "prometheus"),
    Requirement::Tool("bin/prometheus"),
    Requirement::Tool("bin/promtool"),
    Requirement::RootOrSudo,
    Requirement::Btf,
    Requirement::Loop,
    Requirement::Program("losetup", "mount"),
];

pub(super) fn check() -> Result<()> {
    run(&mut command(host::python(), &["deploy/grafana/dashboard.py", "--check"]))?;
    check_on_synthetic_drives()?;
    test::released_tests(|suite| suite.name == "dashboards")?.outcome
}

/// Runs the tests that `deploy/grafana/synthetic.py` generates.
fn check_on_synthetic_drives() -> Result<()> {
    let folder = root().join("target/grafana");
    run(command(host::python(), &["deploy/grafana/synthetic.py"]).arg(&folder))?;
    run(command(tool("bin/promtool"), &["test", "rules", "biolat.json", "biolat-classic.json"])
        .current_dir(&folder))
}

/// Regenerates the dashboards.
pub(super) fn write() -> Result<()> {
    run(&mut command(host::python(), &["deploy/grafana/dashboard.py"]))
}
