//! Checks the chart's icon, and the rules and dashboards that it links to. `helm package` replaces the links with their contents.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::paths::CHART;
use crate::process::root;

const FILES: &str = "deploy/kubernetes/biolat/files";

/// Rule files with alerts.
const ALERTS: [&str; 2] = ["alerts.yml", "slo.yml"];

/// Rendered manifests and the rules that they contain. `everything` also has the alerts, with a different runbook URL.
const RULES: [(&str, &str); 4] = [
    ("everything", "recording.yml"),
    ("password", "alerts.yml"),
    ("password", "recording-classic.yml"),
    ("password", "slo-classic.yml"),
];

/// Rendered manifests and the dashboards that they contain.
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

/// Checks that the ConfigMap contains the dashboard on one line: `kubectl apply` also stores it in an annotation, whose size is
/// limited.
fn check_dashboard(manifest: &str, file: &str) -> Result<()> {
    let mut lines = manifest.lines().skip_while(|line| line.trim() != format!("{file}: |"));
    let line = lines.nth(1).with_context(|| format!("does not render {file}"))?;
    let rendered: Value = serde_json::from_str(line).with_context(|| format!("cannot parse {file}"))?;
    ensure!(rendered == serde_json::from_str::<Value>(&linked(file)?)?, "renders a different {file}");
    Ok(())
}

/// Reads the file that one of the chart's links points to.
fn linked(file: &str) -> Result<String> {
    read(&format!("{FILES}/{file}"))
}

/// Checks that the chart's icon matches the icon file. The chart contains it as a data URI, because a chart can only specify an
/// icon by URL.
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
