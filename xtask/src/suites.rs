//! The kernel test suites: their requirements, and whether they run on the host, in guests or both.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::host::{self, Requirement};
use Machine::{ManyCpus, SparseCpus, Standard};

/// An emulated machine. `vm/machine.rs` defines its CPUs and drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Machine {
    /// Two CPUs, a drive of each kind, and a hotplug bay.
    Standard,
    /// As many possible CPUs as a large server has. Two of them are present.
    ManyCpus,
    /// Four online CPUs of many possible ones, like a typical virtual server, on two NUMA nodes.
    SparseCpus,
    /// A virtual server that boots from its only drive. It runs no suite.
    Server,
}

/// A module of kernel tests in `biolat-daemon/tests/kernel`.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// Runs on the host's kernel.
    pub(crate) on_host: bool,
    /// Requirements on the host, in addition to the requirements of all kernel tests. Guests that run the suite get a copy of its
    /// tools.
    pub(crate) needs: &'static [Requirement],
    /// Emulated machines it runs on.
    pub(crate) guests: &'static [Machine],
}

const EXT4: Requirement = Requirement::Program("mkfs.ext4", "e2fsprogs");
const XFS: Requirement = Requirement::Program("mkfs.xfs", "xfsprogs");
const FSFREEZE: Requirement = Requirement::Program("fsfreeze", "util-linux");
const FIO: Requirement = Requirement::Program("fio", "fio");
const CHROMIUM: Requirement = Requirement::Program("chromium", "chromium");
const PLAYWRIGHT: Requirement = Requirement::PythonPackage("playwright.sync_api", "playwright==1.65.2");
const BPFTOOL: Requirement = Requirement::Program("bpftool", "bpftool");
/// Prometheus 3.8 or later.
const PROMETHEUS: Requirement = Requirement::Tool("bin/prometheus");
/// Any version of Prometheus.
const ANY_PROMETHEUS: Requirement = Requirement::Program("prometheus", "prometheus");

/// Requirements of tests that open the web page.
pub(crate) const BROWSER: &[Requirement] = &[CHROMIUM, PLAYWRIGHT];

/// Modules of `biolat-daemon/tests/userspace` whose ignored tests use external clients, with their requirements.
pub(crate) const CLIENT_TESTS: &[(&str, &[Requirement])] = &[
    (
        "clients",
        &[Requirement::Program("curl", "curl"), Requirement::Program("openssl", "openssl"), ANY_PROMETHEUS],
    ),
    ("exemplars", &[PROMETHEUS, ANY_PROMETHEUS]),
    ("series", &[PROMETHEUS, ANY_PROMETHEUS]),
];

/// All suites. A suite that is not listed here never runs.
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
    Suite {
        name: "hung",
        on_host: true,
        needs: &[EXT4, FIO, FSFREEZE, ANY_PROMETHEUS, CHROMIUM, PLAYWRIGHT],
        guests: &[],
    },
    Suite { name: "history", on_host: true, needs: &[EXT4, FIO, FSFREEZE], guests: &[] },
    Suite { name: "history_file", on_host: true, needs: &[], guests: &[] },
    Suite {
        name: "incidents",
        on_host: true,
        needs: &[EXT4, FIO, FSFREEZE, PROMETHEUS, Requirement::TemporaryFilesOnDisk],
        guests: &[],
    },
    Suite { name: "hotplug", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "lifecycle", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite {
        name: "peers",
        on_host: true,
        needs: &[
            ANY_PROMETHEUS,
            Requirement::Program("promtool", "prometheus"),
            Requirement::PythonPackage("prometheus_client.openmetrics.parser", "prometheus_client==0.23.1"),
        ],
        guests: &[],
    },
    Suite { name: "page", on_host: true, needs: BROWSER, guests: &[] },
    Suite { name: "page_history", on_host: true, needs: BROWSER, guests: &[] },
    Suite { name: "page_resilience", on_host: true, needs: BROWSER, guests: &[] },
    // Run by `cargo xtask deploy grafana`, which lists its requirements.
    Suite { name: "dashboards", on_host: false, needs: &[], guests: &[] },
    Suite { name: "drives", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "stacks", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "requests", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "failures", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "timeouts", on_host: false, needs: &[], guests: &[Standard] },
    Suite {
        name: "faults",
        on_host: true,
        needs: &[Requirement::Program("strace", "strace"), Requirement::Program("yes", "coreutils")],
        guests: &[],
    },
    Suite { name: "admission", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "inflight", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "known_latency", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "unthrottled", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "schedulers", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "preemption", on_host: false, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "multipath", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "multipath_alert", on_host: false, needs: &[PROMETHEUS], guests: &[Standard] },
    Suite { name: "completions_alert", on_host: false, needs: &[PROMETHEUS], guests: &[Standard] },
    Suite { name: "names", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "volumes", on_host: false, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "nvme_hotplug", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "series_limits", on_host: false, needs: &[], guests: &[Standard] },
    // In guests, `series_limits` covers the reuse of removed devices' slots.
    Suite { name: "device_churn", on_host: true, needs: &[], guests: &[] },
    Suite { name: "kept_counters", on_host: true, needs: &[ANY_PROMETHEUS], guests: &[] },
    Suite { name: "kept_probe", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "tag_waits", on_host: false, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "takeover", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "killed_while_hung", on_host: true, needs: &[EXT4, FSFREEZE, BPFTOOL], guests: &[] },
    Suite { name: "pins", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "restarts", on_host: true, needs: &[BPFTOOL], guests: &[Standard] },
    Suite { name: "rights", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "systemd", on_host: true, needs: &[], guests: &[Standard] },
    Suite { name: "web", on_host: true, needs: &[Requirement::Program("curl", "curl")], guests: &[] },
    Suite {
        name: "hist",
        on_host: true,
        needs: &[
            FIO,
            Requirement::Program("biolatency", "libbpf-tools"),
            Requirement::Program("script", "bsdutils"),
        ],
        guests: &[],
    },
    Suite { name: "findings", on_host: false, needs: &[PROMETHEUS], guests: &[Standard] },
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
    Suite { name: "limits", on_host: true, needs: &[Requirement::Cgroups], guests: &[] },
    Suite { name: "process_sampling", on_host: true, needs: &[FIO], guests: &[] },
    Suite { name: "processes", on_host: true, needs: &[FIO], guests: &[Standard] },
    Suite { name: "sizes", on_host: true, needs: &[FIO], guests: &[] },
    Suite { name: "size_latency", on_host: false, needs: &[PROMETHEUS], guests: &[Standard] },
    Suite { name: "workloads", on_host: true, needs: &[EXT4, XFS], guests: &[Standard] },
    Suite { name: "soak", on_host: true, needs: &[], guests: &[] },
    Suite { name: "soak_restarts", on_host: true, needs: &[BPFTOOL], guests: &[] },
    Suite { name: "cpu_hotplug", on_host: false, needs: &[], guests: &[Standard] },
    Suite { name: "scale", on_host: false, needs: &[], guests: &[ManyCpus] },
    Suite { name: "possible_cpus", on_host: false, needs: &[], guests: &[SparseCpus] },
];

/// Suites that guests run only on the newest kernel, unless all are requested. Either their result does not depend on the kernel,
/// because other suites test the kernel features they rely on, or they take a long time and also run on the host's kernel.
const ON_NEWEST_KERNEL_ONLY: [&str; 12] = [
    "check",
    "completions_alert",
    "findings",
    "kept_probe",
    "multipath_alert",
    "pins",
    "possible_cpus",
    "restarts",
    "scale",
    "series_limits",
    "size_latency",
    "systemd",
];

/// Suites that verify that counts and latencies are exact, and that the daemon needs no more rights than documented.
pub(crate) const EXACTNESS: [&str; 4] = ["drives", "known_latency", "requests", "rights"];

/// Suites that a short run excludes: they take minutes in a guest, and many more on a busy host.
const LONG: [&str; 1] = ["scale"];

/// Selection of the suites that guests run.
#[derive(Clone, Copy)]
pub(crate) enum Extent {
    /// Only [`EXACTNESS`].
    Exactness,
    /// On the newest kernel, suites that do not run on the host, except [`LONG`] and [`EXACTNESS`]. On other kernels,
    /// [`EXACTNESS`].
    ComplementHost,
    /// On the newest kernel, all suites. On other kernels, all but [`ON_NEWEST_KERNEL_ONLY`].
    Usual,
    /// All suites on every kernel.
    All,
}

impl Suite {
    /// Whether guests run the suite on the newest kernel (`is_newest`) or on any other kernel.
    pub(crate) fn runs_on(&self, is_newest: bool, extent: Extent) -> bool {
        match extent {
            Extent::ComplementHost if is_newest => {
                !self.on_host && !EXACTNESS.contains(&self.name) && !LONG.contains(&self.name)
            }
            Extent::Exactness | Extent::ComplementHost => EXACTNESS.contains(&self.name),
            Extent::Usual => is_newest || !ON_NEWEST_KERNEL_ONLY.contains(&self.name),
            Extent::All => true,
        }
    }

    /// Returns the tools that its tests run, as paths in `target/tools`.
    fn tools(&self) -> impl Iterator<Item = &'static str> {
        self.needs.iter().filter_map(|need| match need {
            Requirement::Tool(path) => Some(*path),
            _ => None,
        })
    }

    pub(crate) fn has_tools(&self) -> bool {
        self.tools().next().is_some()
    }

    /// Returns which of its tools this machine lacks, or `None` if it has all.
    pub(crate) fn missing_tools(&self) -> Option<String> {
        host::missing(self.needs.iter().filter(|need| matches!(need, Requirement::Tool(_))))
    }
}

/// Returns the tools that these tests run, as paths in `target/tools`.
pub(crate) fn tools(tests: &[&str]) -> BTreeSet<&'static str> {
    tests.iter().filter_map(|test| suite_of(test)).flat_map(Suite::tools).collect()
}

/// Parses the test runner's `--list` output. A test whose suite is not in [`SUITES`] would never run, so it is an error.
pub(crate) fn parse_test_list(list: &str) -> Result<Vec<&str>> {
    let tests: Vec<_> = list.lines().filter_map(|line| line.strip_suffix(": test")).collect();
    match tests.iter().find(|test| suite_of(test).is_none()) {
        Some(unlisted) => bail!("{unlisted}: its suite is not listed in xtask/src/suites.rs: add it there"),
        None => Ok(tests),
    }
}

/// Returns the suite a test belongs to.
fn suite_of(test: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| test.strip_prefix(suite.name).is_some_and(|rest| rest.starts_with("::")))
}

/// Returns the tests whose suite matches `is_selected` and, if there are `filters`, whose name contains one of them.
pub(crate) fn select<'a>(
    tests: &[&'a str],
    filters: &[String],
    is_selected: impl Fn(&Suite) -> bool,
) -> Vec<&'a str> {
    let matches = |test: &&str| filters.is_empty() || filters.iter().any(|filter| test.contains(filter));
    tests.iter().copied().filter(|test| suite_of(test).is_some_and(&is_selected)).filter(matches).collect()
}

#[cfg(test)]
mod tests;
