//! `cargo xtask deploy kubernetes`: lints the Helm chart, validates the rendered manifests against the schemas of Kubernetes
//! and the Prometheus operator, compares the plain manifest with the chart's defaults, and checks the scrape config.
//!
//! Wrong values and deliberate mistakes show that the checks can fail.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    host::{Requirement, python, tool},
    process::{command, output, root, run},
};

pub(super) const REQUIREMENTS: &[Requirement] = &[
    Requirement::Tool("bin/helm"),
    Requirement::Tool("prometheus-operator"),
    Requirement::Program("promtool", "prometheus"),
    Requirement::PythonPackage("kubernetes_validate", "kubernetes-validate==1.37.0"),
];

const CHART: &str = "deploy/kubernetes/biolat";
const README: &str = "deploy/kubernetes/README.md";
const NAMESPACE: &str = "deploy/kubernetes/namespace.yaml";
const MANIFEST: &str = "deploy/kubernetes/biolat.yaml";
const SCRAPE: &str = "deploy/kubernetes/prometheus.yml";
/// The directory of rendered manifests.
const SCRATCH: &str = "target/tmp/deploy-kubernetes";
const CHECKER: &str = "xtask/src/deploy/kubernetes/manifests.py";

/// Labels that only manifests installed by Helm have: lines with them are left out of the plain manifest.
const HELM_LABELS: [&str; 2] = ["app.kubernetes.io/managed-by:", "helm.sh/chart:"];

/// Values that the chart must reject, and a part of the error.
const WRONG_VALUES: [(&str, &str); 12] = [
    ("user=admin", "'nonroot', 'root'"),
    ("privileged=true", "'privileged' not allowed"),
    ("webConfig.secret=web", "'secret' not allowed"),
    ("port=80", "/port"),
    ("args[0]=--listen=0.0.0.0:1", "/args/0"),
    ("args[0]=--workloads=1", "/args/0"),
    ("workloads=0", "/workloads"),
    ("workloads=on", "/workloads"),
    ("maxUnavailable=0", "/maxUnavailable"),
    ("seccompProfile.type=Localhost", "localhostProfile"),
    ("image.digest=sha256:0", "/image/digest"),
    ("podMonitor.enabled=true,serviceMonitor.enabled=true", "scraped twice"),
];

/// Deliberate mistakes that the checker must find: the rendered manifest, the text, its replacement, a part of the finding.
const MISTAKES: [(&str, &str, &str, &str); 16] = [
    ("default", "privileged: false", "privileged: true", "it is privileged"),
    ("default", "add: [BPF, PERFMON]", "add: [BPF, SYS_ADMIN]", "its capabilities are not"),
    ("default", "drop: [ALL]", "drop: []", "its capabilities are not"),
    ("default", "readOnlyRootFilesystem:", "readOnlyRootFileSystem:", "Kubernetes 1.25 rejects"),
    ("default", "maxUnavailable: 10%", "maxUnavailable: [1]", "Kubernetes 1.37 rejects"),
    ("default", "apiVersion: apps/v1\n", "apiVersion: apps/v1beta2\n", "Kubernetes 1.37 has no"),
    ("default", "enableServiceLinks: false", "hostNetwork: true", "hostNetwork is set"),
    ("default", " path: /var/log/containers", " path: /var/log", "has the host path /var/log"),
    (
        "default",
        "/var/log/containers\n              readOnly: true",
        "/var/log/containers",
        "may write to container-logs",
    ),
    (
        "root",
        "      containers:",
        "      volumes: [{name: x, hostPath: {path: /}}]\n      containers:",
        "has the host path /",
    ),
    ("tls", "projected:", "emptyDir:", "has the type emptyDir"),
    ("default", "runAsNonRoot: true", "runAsNonRoot: false", "it may run as root"),
    ("default", "egress: []", "egress: [{}]", "it allows egress"),
    (
        "root",
        "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: true",
        "allowPrivilegeEscalation does",
    ),
    ("everything", "scrapeNativeHistograms:", "nativeHistograms:", "the operator rejects spec"),
    ("tls", "PrometheusProto", "Protobuf", "the operator rejects spec.scrapeProtocols.0"),
];

/// Checks the chart, the rendered manifests, the plain manifest and the scrape config.
pub(super) fn check() -> Result<()> {
    check_versions()?;
    let rendered = rendered()?;
    check_wrong_values()?;
    let findings = findings("rendered", &rendered)?;
    ensure!(findings.is_empty(), "{}", findings.into_values().flatten().collect::<Vec<_>>().join("\n"));
    check_mistakes(&rendered)?;
    check_pod_names(&rendered)?;
    let plain = plain(&rendered)?;
    let committed = fs::read_to_string(root().join(MANIFEST)).unwrap_or_default();
    ensure!(
        plain == committed,
        "{MANIFEST} is stale: regenerate it with: cargo xtask deploy --write kubernetes"
    );
    check_values_documented()?;
    check_scrape_config()
}

/// Writes the plain manifest.
pub(super) fn write() -> Result<()> {
    fs::write(root().join(MANIFEST), plain(&rendered()?)?).with_context(|| format!("cannot write {MANIFEST}"))
}

/// Lints and renders the chart with its defaults and with each values file in its `ci/`.
fn rendered() -> Result<BTreeMap<String, String>> {
    let mut rendered = BTreeMap::from([("default".to_owned(), helm(&[])?)]);
    for entry in fs::read_dir(root().join(CHART).join("ci"))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().replace("-values", "");
        rendered.insert(name, helm(&["--values", &path.to_string_lossy()])?);
    }
    Ok(rendered)
}

fn helm(values: &[&str]) -> Result<String> {
    let helm = tool("bin/helm");
    run(&mut command(&helm, &[&["lint", "--strict", "--quiet", CHART], values].concat()))?;
    output(&mut command(&helm, &[&["template", "biolat", CHART, "--namespace", "biolat"], values].concat()))
}

fn check_wrong_values() -> Result<()> {
    for (values, named) in WRONG_VALUES {
        let rendering =
            command(tool("bin/helm"), &["template", "biolat", CHART, "--set", values]).output()?;
        let said = String::from_utf8_lossy(&rendering.stderr);
        ensure!(!rendering.status.success(), "the chart accepts {values}, expected an error");
        ensure!(said.contains(named), "the chart's error for {values} does not contain {named}: {said}");
    }
    Ok(())
}

fn check_mistakes(rendered: &BTreeMap<String, String>) -> Result<()> {
    let mut mistaken = BTreeMap::new();
    for (number, (of, from, to, _)) in MISTAKES.iter().enumerate() {
        let text = rendered.get(*of).with_context(|| format!("no {of}-values.yaml in {CHART}/ci"))?;
        ensure!(text.contains(from), "{of}-values.yaml no longer renders {from}");
        mistaken.insert(format!("{number:02}"), text.replacen(from, to, 1));
    }
    let findings = findings("mistaken", &mistaken)?;
    for (number, (_, _, to, expected)) in MISTAKES.iter().enumerate() {
        let said = findings.get(&format!("{number:02}")).map_or(&[][..], Vec::as_slice);
        ensure!(
            said.iter().any(|said| said.contains(expected)),
            "the checker does not find the mistake {to}: expected {expected}, got {said:?}"
        );
    }
    Ok(())
}

/// The directory with the names of pods is mounted only where they are needed.
fn check_pod_names(rendered: &BTreeMap<String, String>) -> Result<()> {
    for (name, needed) in [("default", true), ("tls", true), ("root", false), ("password", false)] {
        let text = rendered.get(name).with_context(|| format!("no {name}-values.yaml in {CHART}/ci"))?;
        ensure!(text.contains("hostPath:") == needed, "{name}: expected a host path: {needed}");
    }
    Ok(())
}

/// The findings of the schemas and the privilege rules for each manifest.
fn findings(folder: &str, manifests: &BTreeMap<String, String>) -> Result<BTreeMap<String, Vec<String>>> {
    let folder = root().join(SCRATCH).join(folder);
    fs::create_dir_all(&folder)?;
    let mut checker = command(python(), &[CHECKER]);
    checker.arg(tool("prometheus-operator"));
    for (name, manifest) in manifests {
        let file = folder.join(name).with_extension("yaml");
        fs::write(&file, manifest)?;
        checker.arg(file);
    }
    let mut findings = BTreeMap::<_, Vec<_>>::new();
    for line in output(&mut checker)?.lines() {
        let (file, finding) = line.split_once('\t').context("a finding without a file")?;
        let name = PathBuf::from(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        findings.entry(name.clone()).or_default().push(format!("{name}: {finding}"));
    }
    Ok(findings)
}

/// The plain manifest for `kubectl apply`: the namespace, and the chart with its defaults.
fn plain(rendered: &BTreeMap<String, String>) -> Result<String> {
    let namespace = fs::read_to_string(root().join(NAMESPACE))?;
    let chart = rendered.get("default").context("nothing rendered")?;
    let lines =
        chart.lines().filter(|line| !HELM_LABELS.iter().any(|label| line.trim_start().starts_with(label)));
    let head = format!("# Generated from {CHART} by: cargo xtask deploy --write kubernetes\n");
    Ok(lines.fold(head + &namespace, |text, line| text + line + "\n"))
}

/// The chart and the daemon have the same version.
fn check_versions() -> Result<()> {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml"))?;
    for field in ["version", "appVersion"] {
        let line = format!("{field}: {}", env!("CARGO_PKG_VERSION"));
        ensure!(chart.lines().any(|of_chart| of_chart == line), "{CHART}/Chart.yaml does not contain {line}");
    }
    Ok(())
}

/// The README's table lists the top-level values of `values.yaml`, in the same order.
fn check_values_documented() -> Result<()> {
    let values = fs::read_to_string(root().join(CHART).join("values.yaml"))?;
    let values: Vec<_> = values
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    let readme = fs::read_to_string(root().join(README))?;
    let table = readme.split_once("\n## Values\n").map_or("", |(_, table)| table);
    let documented: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    if values != documented {
        bail!("the table in {README} does not match values.yaml:\n{documented:?}\n{values:?}");
    }
    Ok(())
}

/// Debian's promtool is built without Kubernetes service discovery: check the scrape config without it.
fn check_scrape_config() -> Result<()> {
    let config = fs::read_to_string(root().join(SCRAPE))?;
    let (before, rest) =
        config.split_once("    kubernetes_sd_configs:\n").context("no kubernetes_sd_configs")?;
    let (_, after) = rest.split_once("    relabel_configs:\n").context("no relabel_configs after it")?;
    let file = root().join(SCRATCH).join("prometheus.yml");
    fs::write(&file, format!("{before}    static_configs: []\n    relabel_configs:\n{after}"))?;
    run(command("promtool", &["check", "config"]).arg(file))
}
