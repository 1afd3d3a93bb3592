//! The kernel tests by module: what each needs, and where it runs.

use anyhow::{Result, bail};

use crate::{
    machine::Need,
    vm::Machine::{self, Everyday, Wide},
};

/// A module of kernel tests.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Whether it runs on this machine's own kernel.
    pub(crate) here: bool,
    /// What it needs there beyond what all of them need.
    pub(crate) needs: &'static [Need],
    /// The emulated machines that it runs on.
    pub(crate) there: &'static [Machine],
}

const EXT4: Need = Need::Program("mkfs.ext4", "e2fsprogs");
const XFS: Need = Need::Program("mkfs.xfs", "xfsprogs");
const FIO: Need = Need::Program("fio", "fio");
const BPFTOOL: Need = Need::Program("bpftool", "bpftool");

/// What shows a page.
pub(crate) const PAGE: &[Need] = &[
    Need::Program("chromium", "chromium"),
    Need::PythonPackage("playwright.sync_api", "playwright==1.65.2"),
];

/// Whatever is not here is run nowhere.
pub(crate) const SUITES: &[Suite] = &[
    Suite { name: "api", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "buckets", here: true, needs: &[Need::ProbeCompiler], there: &[Everyday] },
    Suite { name: "check", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "counts", here: true, needs: &[EXT4, XFS], there: &[Everyday] },
    Suite { name: "disk", here: true, needs: &[Need::TemporaryFilesOnDisk], there: &[] },
    Suite { name: "latency", here: true, needs: &[FIO, Need::Program("chrt", "util-linux")], there: &[] },
    Suite { name: "losses", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "hotplug", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "lifecycle", here: true, needs: &[BPFTOOL], there: &[Everyday] },
    Suite {
        name: "peers",
        here: true,
        needs: &[
            Need::Program("prometheus", "prometheus"),
            Need::Program("promtool", "prometheus"),
            Need::PythonPackage("prometheus_client.openmetrics.parser", "prometheus_client==0.23.1"),
        ],
        there: &[],
    },
    Suite { name: "page", here: true, needs: PAGE, there: &[] },
    // `cargo xtask deploy grafana` runs these, and says what they need.
    Suite { name: "dashboards", here: false, needs: &[], there: &[] },
    Suite { name: "drives", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "stacks", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "requests", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "failures", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "known_latency", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "unthrottled", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "schedulers", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "nvme_hotplug", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "series_limits", here: false, needs: &[], there: &[Everyday] },
    Suite { name: "device_churn", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "restarts", here: true, needs: &[BPFTOOL], there: &[Everyday] },
    Suite { name: "rights", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "systemd", here: true, needs: &[], there: &[Everyday] },
    Suite { name: "web", here: true, needs: &[Need::Program("curl", "curl")], there: &[] },
    Suite {
        name: "report",
        here: true,
        needs: &[FIO, Need::Program("biolatency", "libbpf-tools"), Need::Program("script", "bsdutils")],
        there: &[],
    },
    Suite { name: "report_findings", here: false, needs: &[], there: &[Everyday] },
    Suite {
        name: "top",
        here: true,
        needs: &[FIO, Need::Program("bash", "bash"), Need::PythonPackage("pyte", "pyte==0.8.2")],
        there: &[],
    },
    Suite { name: "scale", here: false, needs: &[], there: &[Wide] },
];

/// The tests of the test runner's list. One whose module is not above would never be run: that is an error.
pub(crate) fn tests(list: &str) -> Result<Vec<&str>> {
    let tests: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    match tests.iter().find(|test| of(test).is_none()) {
        Some(stray) => bail!("{stray}: its module is not in xtask/src/suites.rs"),
        None => Ok(tests),
    }
}

/// The suite of a test.
fn of(test: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| test.strip_prefix(suite.name).is_some_and(|rest| rest.starts_with("::")))
}

/// Those of these tests that are of such suites, and wanted.
pub(crate) fn chosen<'a>(
    tests: &[&'a str],
    wanted: Option<&str>,
    is_such: impl Fn(&Suite) -> bool,
) -> Vec<&'a str> {
    let is_wanted = |test: &&str| wanted.is_none_or(|wanted| test.contains(wanted));
    tests.iter().copied().filter(|test| of(test).is_some_and(&is_such)).filter(is_wanted).collect()
}
