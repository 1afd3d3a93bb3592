//! What the chart copies: rules and dashboards, which a chart can only read from its own directory, and its icon.

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::paths::CHART;
use crate::process::root;

/// In the chart's `files/`.
const COPIES: [&str; 7] = [
    "deploy/prometheus/alerts.yml",
    "deploy/prometheus/slo.yml",
    "deploy/prometheus/slo-classic.yml",
    "deploy/prometheus/recording.yml",
    "deploy/prometheus/recording-classic.yml",
    "deploy/grafana/biolat.json",
    "deploy/grafana/biolat-classic.json",
];

/// Which rendered manifests have which copy, indented by so much. `everything` has the alerts with another runbook.
const RENDERED: [(&str, &str, usize); 6] = [
    ("everything", "recording.yml", 2),
    ("everything", "biolat.json", 4),
    ("password", "alerts.yml", 2),
    ("password", "recording-classic.yml", 2),
    ("password", "slo-classic.yml", 2),
    ("password", "biolat-classic.json", 4),
];

const RUNBOOK: &str = "runbook_url: https://runbooks.example/disks.md#";

const ICON: &str = "deploy/kubernetes/icon.svg";

pub(super) fn check(rendered: &BTreeMap<String, String>) -> Result<()> {
    for (source, copy) in paths() {
        ensure!(
            copied(&source)? == read(&copy).unwrap_or_default(),
            "{copy} is not {source}: cargo xtask deploy --write kubernetes"
        );
    }
    for (values, file, indent) in RENDERED {
        let text = read(&format!("{CHART}/files/{file}"))?;
        let indented = text.trim().replace('\n', &format!("\n{}", " ".repeat(indent)));
        ensure!(rendered[values].contains(&indented), "{values}-values.yaml does not render {file}");
    }
    let alerts = COPIES[..2].iter().map(|file| read(file).map(|rules| rules.matches("- alert:").count()));
    let alerts = alerts.sum::<Result<usize>>()?;
    let linked = rendered["everything"].matches(RUNBOOK).count();
    ensure!(linked == alerts, "{linked} of {alerts} alerts link to {RUNBOOK}");
    check_icon()
}

pub(super) fn write() -> Result<()> {
    fs::create_dir_all(root().join(CHART).join("files"))?;
    for (source, copy) in paths() {
        fs::write(root().join(&copy), copied(&source)?).with_context(|| format!("cannot write {copy}"))?;
    }
    Ok(())
}

/// The copy of a file: a dashboard without whitespace, because `kubectl apply` keeps the ConfigMap in an annotation, which is limited.
fn copied(source: &str) -> Result<String> {
    let text = read(source)?;
    if !source.ends_with(".json") {
        return Ok(text);
    }
    let json: Value = serde_json::from_str(&text).with_context(|| format!("cannot parse {source}"))?;
    Ok(json.to_string() + "\n")
}

fn paths() -> impl Iterator<Item = (String, String)> {
    COPIES.into_iter().map(|source| {
        let name = source.rsplit('/').next().unwrap_or(source);
        (source.to_owned(), format!("{CHART}/files/{name}"))
    })
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
