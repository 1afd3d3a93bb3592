//! The dashboards: they are what their source makes, and each query has data on a real Prometheus that scrapes a daemon.

use anyhow::Result;

use crate::{
    machine::{self, Need},
    process::{command, run},
    test,
};

pub(super) const NEEDS: &[Need] = &[
    Need::PythonPackage("grafana_foundation_sdk", "'grafana-foundation-sdk==1769699379!11.6.0'"),
    Need::Program("prometheus", "prometheus"),
    Need::Tool("bin/prometheus"),
    Need::Root,
    Need::Btf,
    Need::Loop,
    Need::Program("losetup", "mount"),
];

pub(super) fn check() -> Result<()> {
    run(&mut command(machine::python(), &["deploy/grafana/dashboard.py", "--check"]))?;
    test::on_this_kernel(true, None, |suite| suite.name == "dashboards")
}

/// Makes the dashboards anew.
pub(super) fn write() -> Result<()> {
    run(&mut command(machine::python(), &["deploy/grafana/dashboard.py"]))
}
