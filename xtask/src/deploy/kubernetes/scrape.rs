//! Checks the cluster's scrape configs with the promtool versions that they support, and the permissions for discovering pods.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{paths::SCRATCH, schemas::findings};
use crate::{
    folder::make_empty,
    host::tool,
    process::{command, output, root, run},
};

const DISCOVERY: &str = "deploy/kubernetes/prometheus.yml";
const PERMISSIONS: &str = "deploy/kubernetes/prometheus-rbac.yaml";
/// Scrape config for a Prometheus without Kubernetes discovery, such as Debian's.
const FILES: &str = "deploy/kubernetes/prometheus-files.yml";
/// Name and content of the target file that [`FILES`] refers to.
const TARGETS: (&str, &str) =
    ("biolat-targets.yml", r#"- {targets: ["10.0.0.5:9976"], labels: {node: "node1"}}"#);

pub(super) fn check() -> Result<()> {
    let (debian, new) = (Path::new("promtool"), &*tool("bin/promtool"));
    run(&mut command(new, &["check", "config", DISCOVERY]))?;
    check_permissions()?;
    check_files(debian)?;
    check_files(new)
}

/// Checks that Kubernetes accepts the manifest, and that it grants the permissions that pod discovery needs, only in the pods'
/// namespace.
fn check_permissions() -> Result<()> {
    let manifest = read(PERMISSIONS)?;
    let findings = findings("scrape", &BTreeMap::from([("rbac".to_owned(), manifest.clone())]))?;
    let findings: Vec<_> = findings.into_values().flatten().collect();
    // The checker reports these kinds, because the chart must not create them.
    let expected = ["Role", "RoleBinding"]
        .map(|kind| format!("rbac: {kind} biolat-discovery: the chart must not create this kind"));
    ensure!(findings == expected, "{PERMISSIONS}: {}", findings.join("\n"));
    ensure!(manifest.contains("verbs: [get, list, watch]"), "{PERMISSIONS}: expected get, list and watch");
    Ok(())
}

/// Checks that a version of promtool accepts the config and discovers the file's targets, with the node's name as instance.
fn check_files(promtool: &Path) -> Result<()> {
    let folder = root().join(SCRATCH).join("scrape");
    make_empty(&folder)?;
    let (name, targets) = TARGETS;
    fs::write(folder.join(name), targets)?;
    fs::write(folder.join("prometheus.yml"), read(FILES)?)?;
    run(command(promtool, &["check", "config", "prometheus.yml"]).current_dir(&folder))?;
    let discover = ["check", "service-discovery", "--timeout=1s", "prometheus.yml", "biolat"];
    let discovered = output(command(promtool, &discover).current_dir(&folder))?;
    let discovered: Value = serde_json::from_str(&discovered).context("cannot parse promtool's targets")?;
    let labels = &discovered[0]["labels"];
    ensure!(
        labels["__address__"] == "10.0.0.5:9976"
            && labels["instance"] == "node1"
            && labels["node"] == "node1",
        "{FILES}: the target has the labels {labels}"
    );
    Ok(())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}
