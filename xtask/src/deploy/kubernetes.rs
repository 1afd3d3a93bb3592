//! `cargo xtask deploy kubernetes`: lints the Helm chart, validates the rendered manifests against the schemas of Kubernetes
//! and the Prometheus operator, compares the plain manifest with the chart's defaults, and checks the scrape configs and the
//! documented joins.
//!
//! Invalid values and deliberate mistakes verify that the checks can fail.

mod joins;
mod links;
mod mistakes;
mod notes;
mod paths;
mod schemas;
mod scrape;
mod values;

use std::{collections::BTreeMap, fs};

use anyhow::{Context as _, Result, ensure};

use crate::{
    host::{Requirement, tool},
    process::{command, output, root, run},
};
use paths::CHART;
use schemas::findings;

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Tool("bin/helm"),
    Requirement::Tool("prometheus-operator"),
    Requirement::Program("promtool", "prometheus"),
    Requirement::Tool("bin/promtool"),
    Requirement::PythonPackage("kubernetes_validate", "kubernetes-validate==1.37.0"),
];

const UNPIN: &str = "deploy/kubernetes/unpin.yaml";
const NAMESPACE: &str = "deploy/kubernetes/namespace.yaml";
const MANIFEST: &str = "deploy/kubernetes/biolat.yaml";

/// Labels that only manifests installed by Helm have. Lines with them are excluded from the plain manifest.
const HELM_LABELS: [&str; 2] = ["app.kubernetes.io/managed-by:", "helm.sh/chart:"];

/// Kinds of objects that the plain manifest creates. The chart's defaults grant no cluster permissions.
const KINDS: [&str; 4] = ["Namespace", "NetworkPolicy", "ServiceAccount", "DaemonSet"];

/// Checks the chart, the rendered manifests, the plain manifest, the scrape configs and the documented joins.
pub(super) fn check() -> Result<()> {
    check_versions()?;
    let rendered = rendered()?;
    values::check()?;
    let findings = findings("rendered", &rendered)?;
    ensure!(findings.is_empty(), "{}", findings.into_values().flatten().collect::<Vec<_>>().join("\n"));
    mistakes::check(&rendered)?;
    check_pod_names(&rendered)?;
    links::check(&rendered)?;
    notes::check(&rendered)?;
    check_unpin()?;
    let plain = plain()?;
    let committed = fs::read_to_string(root().join(MANIFEST)).unwrap_or_default();
    ensure!(
        plain == committed,
        "{MANIFEST} is stale: regenerate it with: cargo xtask deploy --write kubernetes"
    );
    let kinds: Vec<_> = plain.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    ensure!(kinds == KINDS, "{MANIFEST} has {kinds:?}, expected {KINDS:?}");
    scrape::check()?;
    joins::check()
}

/// Writes the plain manifest.
pub(super) fn write() -> Result<()> {
    fs::write(root().join(MANIFEST), plain()?).with_context(|| format!("cannot write {MANIFEST}"))
}

/// Lints and renders the chart with its defaults and with each values file in its `ci/`, and renders it as a dependency of a
/// parent chart.
pub(super) fn rendered() -> Result<BTreeMap<String, String>> {
    let parent = values::rendered_by_parent()?;
    let mut rendered = BTreeMap::from([("default".to_owned(), helm(&[])?), ("parent".to_owned(), parent)]);
    for entry in fs::read_dir(root().join(CHART).join("ci"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace("-values", "");
        rendered.insert(name, helm(&["--values", &path.to_string_lossy()])?);
    }
    Ok(rendered)
}

fn helm(values: &[&str]) -> Result<String> {
    run(&mut command(tool("bin/helm"), &[&["lint", "--strict", "--quiet", CHART], values].concat()))?;
    template(values)
}

fn template(arguments: &[&str]) -> Result<String> {
    let template = ["template", "biolat", CHART, "--namespace", "biolat"];
    output(&mut command(tool("bin/helm"), &[&template, arguments].concat()))
}

/// Checks that the host directory with the pod names is mounted only where the names are needed.
fn check_pod_names(rendered: &BTreeMap<String, String>) -> Result<()> {
    for (name, needed) in [("default", true), ("tls", true), ("root", false), ("password", false)] {
        let text = rendered.get(name).with_context(|| format!("no {name}-values.yaml in {CHART}/ci"))?;
        let is_mounted = text.contains("path: /var/log/containers\n");
        ensure!(is_mounted == needed, "{name}: expected the host path of pod names: {needed}");
    }
    Ok(())
}

/// Returns the plain manifest for `kubectl apply`: the namespace, and the chart with its defaults.
fn plain() -> Result<String> {
    let namespace = fs::read_to_string(root().join(NAMESPACE))?;
    let chart = template(&["--skip-tests"])?;
    let lines =
        chart.lines().filter(|line| !HELM_LABELS.iter().any(|label| line.trim_start().starts_with(label)));
    let head = format!("# Generated from {CHART} by: cargo xtask deploy --write kubernetes\n");
    Ok(lines.fold(head + &namespace, |text, line| text + line + "\n"))
}

/// Checks that the Job that removes a kept probe may write only to the probe's directory.
fn check_unpin() -> Result<()> {
    let job = fs::read_to_string(root().join(UNPIN))?
        .replace("generateName: biolat-unpin-", "name: biolat-unpin-1");
    let image = format!("image: biolat:{}\n", env!("CARGO_PKG_VERSION"));
    ensure!(job.contains(&image), "{UNPIN} does not contain {image}");
    let findings = findings("unpin", &BTreeMap::from([("unpin".to_owned(), job)]))?;
    ensure!(findings.is_empty(), "{UNPIN}: {findings:?}");
    Ok(())
}

/// Checks that the chart and the daemon have the same version.
fn check_versions() -> Result<()> {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml"))?;
    for field in ["version: ", "appVersion: ", "      image: biolat:"] {
        let line = format!("{field}{}", env!("CARGO_PKG_VERSION"));
        ensure!(chart.lines().any(|of_chart| of_chart == line), "{CHART}/Chart.yaml does not contain {line}");
    }
    Ok(())
}
