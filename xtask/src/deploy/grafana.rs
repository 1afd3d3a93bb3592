//! The dashboards: they match their source, and each query returns data from a real Prometheus that scrapes a daemon.

use anyhow::Result;

use crate::{
    host::{self, Requirement},
    process::{command, run},
    test,
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::PythonPackage("grafana_foundation_sdk", "'grafana-foundation-sdk==1769699379!11.6.0'"),
    Requirement::Program("prometheus", "prometheus"),
    Requirement::Tool("bin/prometheus"),
    Requirement::RootOrSudo,
    Requirement::Btf,
    Requirement::Loop,
    Requirement::Program("losetup", "mount"),
];

pub(super) fn check() -> Result<()> {
    run(&mut command(host::python(), &["deploy/grafana/dashboard.py", "--check"]))?;
    test::run_kernel_suites(true, None, |suite| suite.name == "dashboards")
}

/// Regenerates the dashboards.
pub(super) fn write() -> Result<()> {
    run(&mut command(host::python(), &["deploy/grafana/dashboard.py"]))
}
