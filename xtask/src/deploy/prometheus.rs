//! Checks scrape configs, recording rules and alerts with the versions of promtool that they support.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    host::{Requirement, tool},
    process::{command, root, run},
};

pub(super) const REQUIREMENTS: &[Requirement] =
    &[Requirement::Program("promtool", "prometheus"), Requirement::Tool("bin/promtool")];

const FOLDER: &str = "deploy/prometheus";
const RULES: [&str; 5] =
    ["recording.yml", "recording-classic.yml", "alerts.yml", "slo.yml", "slo-classic.yml"];
/// Rules for native histograms, and the same rules for classic histograms.
const BOTH_KINDS: [[&str; 2]; 2] =
    [["recording.yml", "recording-classic.yml"], ["slo.yml", "slo-classic.yml"]];
const TESTS: [&str; 14] = [
    "tests/claims.yml",
    "tests/classic.yml",
    "tests/drives.yml",
    "tests/fail_slow.yml",
    "tests/fail_slow_idle.yml",
    "tests/fail_slow_load.yml",
    "tests/failures.yml",
    "tests/figures.yml",
    "tests/fleet.yml",
    "tests/past.yml",
    "tests/pods.yml",
    "tests/slo-classic.yml",
    "tests/slo.yml",
    "tests/volumes.yml",
];
/// Recorded native histograms. `recording-classic.yml` records other series instead.
const HISTOGRAMS: [&str; 3] = [
    "model_op:biolat_device_latency_seconds:rate5m",
    "model_class_op:biolat_total_latency_seconds:rate5m",
    "namespace_pod_device_op:biolat_workload_latency_seconds:rate5m",
];

pub(super) fn check() -> Result<()> {
    let (old, new) = (Path::new("promtool"), &*tool("bin/promtool"));
    promtool(old, &["check", "config"], &["prometheus-before-3.8.yml"])?;
    promtool(new, &["check", "config"], &["prometheus.yml"])?;
    // --syntax-only, because the password and certificate files that it names exist only on the user's machine.
    promtool(new, &["check", "config", "--syntax-only"], &["prometheus-tls.yml"])?;
    promtool(old, &["check", "rules"], &RULES)?;
    promtool(new, &["check", "rules", "--lint=all", "--lint-fatal"], &RULES)?;
    promtool(new, &["test", "rules"], &TESTS)?;
    check_recorded_names()?;
    check_alerts_tested_and_documented()
}

fn promtool(program: &Path, verb: &[&str], files: &[&str]) -> Result<()> {
    run(command(program, verb).args(files).current_dir(root().join(FOLDER)))
}

fn read(file: &str) -> Result<String> {
    let path = root().join(FOLDER).join(file);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Returns the values of a key, in file order.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    text.lines().filter_map(|line| line.trim_start().strip_prefix(key)).map(str::trim).collect()
}

/// Checks that both files of a pair record the same names, so that alerts and dashboards work with either.
fn check_recorded_names() -> Result<()> {
    for files in BOTH_KINDS {
        let [native, classic] = files.map(read);
        let (native, classic) = (native?, classic?);
        let (native, classic) = (values(&native, "- record:"), values(&classic, "- record:"));
        let [native_file, classic_file] = files;
        ensure!(
            native.len() == classic.len(),
            "{native_file} and {classic_file} have different numbers of rules"
        );
        for (native, classic) in native.into_iter().zip(classic) {
            let is_histogram = HISTOGRAMS.contains(&native);
            ensure!(
                native == classic || is_histogram,
                "{native_file} has {native} where {classic_file} has {classic}"
            );
        }
    }
    Ok(())
}

/// Checks that each alert has a test in which it fires, a test in which it does not, and a section in the runbook.
fn check_alerts_tested_and_documented() -> Result<()> {
    let (alerts, runbook) = (read("alerts.yml")? + &read("slo.yml")?, read("runbook.md")?);
    let tests = TESTS.into_iter().map(read).collect::<Result<String>>()?;
    let links = values(&alerts, "runbook_url:");
    let alerts = values(&alerts, "- alert:");
    ensure!(!alerts.is_empty(), "alerts.yml has no alerts");
    let quiet: Vec<_> = values(&tests, "- {alertname:")
        .into_iter()
        .filter(|case| case.ends_with("exp_alerts: []}"))
        .collect();
    let fires = values(&tests, "- alertname:");
    ensure!(
        links.len() == alerts.len(),
        "{} alerts have {} runbook_url annotations",
        alerts.len(),
        links.len()
    );
    for (alert, link) in alerts.into_iter().zip(links) {
        if !fires.contains(&alert) || !quiet.iter().any(|case| case.starts_with(&format!("{alert},"))) {
            bail!("{alert} needs a test in {FOLDER}/tests in which it fires, and one in which it does not");
        }
        let is_documented = values(&runbook, "## ").contains(&alert);
        ensure!(is_documented, "{FOLDER}/runbook.md has no section on {alert}");
        let section = format!("runbook.md#{}", alert.to_lowercase());
        ensure!(
            link.ends_with(&section),
            "{alert} needs a runbook_url that ends with {section}, but has {link}"
        );
    }
    Ok(())
}
