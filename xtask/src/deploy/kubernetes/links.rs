//! What the chart takes from elsewhere: rules and dashboards by links, which `helm package` replaces by their contents, and its icon.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::paths::CHART;
use crate::process::root;

const FILES: &str = "deploy/kubernetes/biolat/files";

/// The rules with alerts.
const ALERTS: [&str; 2] = ["alerts.yml", "slo.yml"];

/// Which rendered manifests have which rules. `everything` has the alerts with another runbook.
const RULES: [(&str, &str); 4] = [
    ("everything", "recording.yml"),
    ("password", "alerts.yml"),
    ("password", "recording-classic.yml"),
    ("password", "slo-classic.yml"),
];

/// Which rendered manifests have which dashboard.
const DASHBOARDS: [(&str, &str); 2] = [("everything", "biolat.json"), ("password", "biolat-classic.json")];

const RUNBOOK: &str = "runbook_url: https://runbooks.example/disks.md#";

const ICON: &str = "deploy/kubernetes/icon.svg";

pub(super) fn check(rendered: &BTreeMap<String, String>) -> Result<()> {
    for entry in fs::read_dir(root().join(FILES))? {
        let entry = entry?;
        ensure!(entry.file_type()?.is_symlink(), "{} is a copy, not a link", entry.path().display());
    }
    for (values, file) in RULES {
        let indented = linked(file)?.trim().replace('\n', "\n  ");
        ensure!(rendered[values].contains(&indented), "{values}-values.yaml does not render {file}");
    }
    for (values, file) in DASHBOARDS {
        check_dashboard(&rendered[values], file).with_context(|| format!("{values}-values.yaml"))?;
    }
    let alerts = ALERTS.iter().map(|file| linked(file).map(|rules| rules.matches("- alert:").count()));
    let alerts = alerts.sum::<Result<usize>>()?;
    let linked = rendered["everything"].matches(RUNBOOK).count();
    ensure!(linked == alerts, "{linked} of {alerts} alerts link to {RUNBOOK}");
    check_icon()
}

/// The ConfigMap has the dashboard in one line: `kubectl apply` keeps it in an annotation as well, whose size is limited.
fn check_dashboard(manifest: &str, file: &str) -> Result<()> {
    let mut lines = manifest.lines().skip_while(|line| line.trim() != format!("{file}: |"));
    let line = lines.nth(1).with_context(|| format!("does not render {file}"))?;
    let rendered: Value = serde_json::from_str(line).with_context(|| format!("cannot parse {file}"))?;
    ensure!(rendered == serde_json::from_str::<Value>(&linked(file)?)?, "renders another {file}");
    Ok(())
}

/// The text that one of the chart's files links to.
fn linked(file: &str) -> Result<String> {
    read(&format!("{FILES}/{file}"))
}

/// The icon is a data URI, as a chart can only name an address.
fn check_icon() -> Result<()> {
    let encoded: String = read(ICON)?
        .trim()
        .bytes()
        .map(|byte| match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect();
    let line = format!("icon: data:image/svg+xml,{encoded}");
    let is_icon = read(&format!("{CHART}/Chart.yaml"))?.lines().any(|of_chart| of_chart == line);
    ensure!(is_icon, "{CHART}/Chart.yaml does not have the icon of {ICON}: {line}");
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}
