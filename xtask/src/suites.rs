//! The kernel tests by module: what each needs, and where it runs.

use anyhow::{Result, bail};

use crate::{
    host::Requirement,
    vm::Machine::{self, ManyCpus, Standard},
};

/// A module of kernel tests.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Whether it runs on this machine's own kernel.
    pub(crate) on_host: bool,
    /// What it needs there beyond what all of them need.
    pub(crate) needs: &'static [Requirement],
    /// The emulated machines that it runs on.
    pub(crate) guests: &'static [Machine],
}

const EXT4: Requirement = Requirement::Program("mkfs.ext4", "e2fsprogs");
const XFS: Requirement = Requirement::Program("mkfs.xfs", "xfsprogs");
const FIO: Requirement = Requirement::Program("fio", "fio");
const BPFTOOL: Requirement = Requirement::Program("bpftool", "bpftool");

/// What shows a page.
pub(crate) const BROWSER: &[Requirement] = &[
    Requirement::Program("chromium", "chromium"),
    Requirement::PythonPackage("playwright.sync_api", "playwright==1.65.2"),
];

/// Whatever is not here is run nowhere.
pub(crate) const SUITES: &[Suite] = &[
    Suite { name: "api", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "buckets", on_host: true, needs: &[Requirement::ProbeCompiler], guests: &[Standard] },
    Suite { name: "check", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "counts", on_host: true, needs: &[EXT4, XFS], guests: &[Standard] },
    Suite { name: "disk", on_host: true, needs: &[Requirement::TemporaryFilesOnDisk], guests: &[] },
    Suite {
        name: "latency",
        on_host: true,
        needs: &[FIO, Requirement::Program("chrt", "util-linux")],
        guests: &[],
    },
    Suite { name: "losses", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "hotplug", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "lifecycle", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite {
        name: "peers",
        on_host: true,
        needs: &[
            Requirement::Program("prometheus", "prometheus"),
            Requirement::Program("promtool", "prometheus"),
            Requirement::PythonPackage("prometheus_client.openmetrics.parser", "prometheus_client==0.23.1"),
        ],
        guests: &[],
    },
    Suite { name: "page", on_host: true, needs: BROWSER, guests: &[] },
    // `cargo xtask deploy grafana` runs these, and says what they need.
    Suite { name: "dashboards", on_host: false, needs: &[], guests: &[] },
    Suite { name: "drives", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "stacks", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "requests", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "failures", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "known_latency", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "unthrottled", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "schedulers", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "nvme_hotplug", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "series_limits", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "device_churn", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "restarts", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "rights", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "systemd", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "web", on_host: true, needs: &[Requirement::Program("curl", "curl")], guests: &[] },
    Suite {
        name: "report",
        on_host: true,
        needs: &[
            FIO,
            Requirement::Program("biolatency", "libbpf-tools"),
            Requirement::Program("script", "bsdutils"),
        ],
        guests: &[],
    },
    Suite { name: "report_findings", on_host: false, needs: &[], guests: &[Standard] },
    Suite {
        name: "top",
        on_host: true,
        needs: &[
            FIO,
            Requirement::Program("bash", "bash"),
            Requirement::PythonPackage("pyte", "pyte==0.8.2"),
        ],
        guests: &[],
    },
    Suite { name: "scale", on_host: false, needs: &[], guests: &[ManyCpus] },
];

/// The tests of the test runner's list. One whose module is not above would never be run: that is an error.
pub(crate) fn parse_test_list(list: &str) -> Result<Vec<&str>> {
    let tests: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    match tests.iter().find(|test| suite_of(test).is_none()) {
        Some(stray) => bail!("{stray}: its module is not in xtask/src/suites.rs"),
        None => Ok(tests),
    }
}

/// The suite of a test.
fn suite_of(test: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| test.strip_prefix(suite.name).is_some_and(|rest| rest.starts_with("::")))
}

/// Those of these tests that are of such suites, and wanted.
pub(crate) fn select<'a>(
    tests: &[&'a str],
    wanted: Option<&str>,
    is_such: impl Fn(&Suite) -> bool,
) -> Vec<&'a str> {
    let is_wanted = |test: &&str| wanted.is_none_or(|wanted| test.contains(wanted));
    tests.iter().copied().filter(|test| suite_of(test).is_some_and(&is_such)).filter(is_wanted).collect()
}
