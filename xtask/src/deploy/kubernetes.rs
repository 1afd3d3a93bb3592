//! `cargo xtask deploy kubernetes`: the chart by Helm, what it renders by the schemas of Kubernetes and of the Prometheus
//! operator, and the plain manifest, which is the chart's with its defaults.
//!
//! The scrape config is promtool's to check, but for its discovery.
//!
//! Each check is shown to be able to fail: values that have to be refused, and mistakes that have to be found.

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
/// Where the checks put what they render.
const SCRATCH: &str = "target/tmp/deploy-kubernetes";
const CHECKER: &str = "xtask/src/deploy/kubernetes/manifests.py";

/// What begins a line that says who made the manifest, which for a plain one is not so.
const MAKERS: [&str; 2] = ["app.kubernetes.io/managed-by:", "helm.sh/chart:"];

/// Values that have to be refused, and what the refusal has to name.
const WRONG_VALUES: [(&str, &str); 9] = [
    ("user=admin", "'nonroot', 'root'"),
    ("privileged=true", "'privileged' not allowed"),
    ("webConfig.secret=web", "'secret' not allowed"),
    ("port=80", "/port"),
    ("args[0]=--listen=0.0.0.0:1", "/args/0"),
    ("maxUnavailable=0", "/maxUnavailable"),
    ("seccompProfile.type=Localhost", "localhostProfile"),
    ("image.digest=sha256:0", "/image/digest"),
    ("podMonitor.enabled=true,serviceMonitor.enabled=true", "scraped twice"),
];

/// Mistakes in what is rendered, and what has to be said of them: where, what becomes what, the complaint.
const MISTAKES: [(&str, &str, &str, &str); 13] = [
    ("default", "privileged: false", "privileged: true", "it is privileged"),
    ("default", "add: [BPF, PERFMON]", "add: [BPF, SYS_ADMIN]", "its capabilities are not"),
    ("default", "drop: [ALL]", "drop: []", "its capabilities are not"),
    ("default", "readOnlyRootFilesystem:", "readOnlyRootFileSystem:", "Kubernetes 1.25 refuses"),
    ("default", "maxUnavailable: 10%", "maxUnavailable: [1]", "Kubernetes 1.37 refuses"),
    ("default", "apiVersion: apps/v1\n", "apiVersion: apps/v1beta2\n", "Kubernetes 1.37 has no"),
    ("default", "enableServiceLinks: false", "hostNetwork: true", "hostNetwork is set"),
    (
        "default",
        "      containers:",
        "      volumes: [{name: x, hostPath: {path: /}}]\n      containers:",
        "hostPath",
    ),
    ("default", "runAsNonRoot: true", "runAsNonRoot: false", "it may run as root"),
    ("default", "egress: []", "egress: [{}]", "it lets something out"),
    (
        "root",
        "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: true",
        "allowPrivilegeEscalation does",
    ),
    ("everything", "scrapeNativeHistograms:", "nativeHistograms:", "the operator refuses spec"),
    ("tls", "PrometheusProto", "Protobuf", "the operator refuses spec.scrapeProtocols.0"),
];

/// Checks the chart, what it renders, and that the plain manifest is in step.
pub(super) fn check() -> Result<()> {
    versions_agree()?;
    let rendered = rendered()?;
    wrong_values_are_refused()?;
    let complaints = complaints("rendered", &rendered)?;
    ensure!(complaints.is_empty(), "{}", complaints.into_values().flatten().collect::<Vec<_>>().join("\n"));
    mistakes_are_found(&rendered)?;
    let plain = plain(&rendered)?;
    let committed = fs::read_to_string(root().join(MANIFEST)).unwrap_or_default();
    ensure!(
        plain == committed,
        "{MANIFEST} is not what the chart gives: write it with: cargo xtask deploy --write kubernetes"
    );
    every_value_is_explained()?;
    scrape_config_is_taken()
}

/// Writes the plain manifest.
pub(super) fn write() -> Result<()> {
    fs::write(root().join(MANIFEST), plain(&rendered()?)?).with_context(|| format!("cannot write {MANIFEST}"))
}

/// What the chart renders with its defaults and with each file of values in its `ci/`, having passed Helm's own linter.
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

fn wrong_values_are_refused() -> Result<()> {
    for (values, named) in WRONG_VALUES {
        let rendering =
            command(tool("bin/helm"), &["template", "biolat", CHART, "--set", values]).output()?;
        let said = String::from_utf8_lossy(&rendering.stderr);
        ensure!(!rendering.status.success(), "the chart takes {values}, which it should refuse");
        ensure!(said.contains(named), "the chart refuses {values} and does not name {named}: {said}");
    }
    Ok(())
}

fn mistakes_are_found(rendered: &BTreeMap<String, String>) -> Result<()> {
    let mut mistaken = BTreeMap::new();
    for (number, (of, from, to, _)) in MISTAKES.iter().enumerate() {
        let text = rendered.get(*of).with_context(|| format!("no {of}-values.yaml in {CHART}/ci"))?;
        ensure!(text.contains(from), "{of}-values.yaml no longer renders {from}");
        mistaken.insert(format!("{number:02}"), text.replacen(from, to, 1));
    }
    let complaints = complaints("mistaken", &mistaken)?;
    for (number, (_, _, to, expected)) in MISTAKES.iter().enumerate() {
        let said = complaints.get(&format!("{number:02}")).map_or(&[][..], Vec::as_slice);
        ensure!(
            said.iter().any(|said| said.contains(expected)),
            "the check does not find {to}: {expected} was to be said, and {said:?} was"
        );
    }
    Ok(())
}

/// What the schemas and the rules of rights say against each of these manifests.
fn complaints(folder: &str, manifests: &BTreeMap<String, String>) -> Result<BTreeMap<String, Vec<String>>> {
    let folder = root().join(SCRATCH).join(folder);
    fs::create_dir_all(&folder)?;
    let mut checker = command(python(), &[CHECKER]);
    checker.arg(tool("prometheus-operator"));
    for (name, manifest) in manifests {
        let file = folder.join(name).with_extension("yaml");
        fs::write(&file, manifest)?;
        checker.arg(file);
    }
    let mut complaints = BTreeMap::<_, Vec<_>>::new();
    for line in output(&mut checker)?.lines() {
        let (file, complaint) = line.split_once('\t').context("a complaint about no file")?;
        let name = PathBuf::from(file).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        complaints.entry(name.clone()).or_default().push(format!("{name}: {complaint}"));
    }
    Ok(complaints)
}

/// What `kubectl apply` is given: the namespace, and the chart with its defaults.
fn plain(rendered: &BTreeMap<String, String>) -> Result<String> {
    let namespace = fs::read_to_string(root().join(NAMESPACE))?;
    let chart = rendered.get("default").context("nothing rendered")?;
    let lines = chart.lines().filter(|line| !MAKERS.iter().any(|maker| line.trim_start().starts_with(maker)));
    let head = format!("# Made of {CHART} by: cargo xtask deploy --write kubernetes\n");
    Ok(lines.fold(head + &namespace, |text, line| text + line + "\n"))
}

/// The chart and the daemon have one version.
fn versions_agree() -> Result<()> {
    let chart = fs::read_to_string(root().join(CHART).join("Chart.yaml"))?;
    for field in ["version", "appVersion"] {
        let line = format!("{field}: {}", env!("CARGO_PKG_VERSION"));
        ensure!(chart.lines().any(|of_chart| of_chart == line), "{CHART}/Chart.yaml does not say {line}");
    }
    Ok(())
}

/// Every value at the top of `values.yaml` is in the README's table, and nothing else is.
fn every_value_is_explained() -> Result<()> {
    let values = fs::read_to_string(root().join(CHART).join("values.yaml"))?;
    let values: Vec<_> = values
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name)
        .filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase()))
        .collect();
    let readme = fs::read_to_string(root().join(README))?;
    let table = readme.split_once("\n## Values\n").map_or("", |(_, table)| table);
    let explained: Vec<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    if values != explained {
        bail!(
            "the table in {README} has not the values of values.yaml in their order:\n{explained:?}\n{values:?}"
        );
    }
    Ok(())
}

/// Debian's Prometheus is built without Kubernetes: where the pods are found is left out, the rest is its to check.
fn scrape_config_is_taken() -> Result<()> {
    let config = fs::read_to_string(root().join(SCRAPE))?;
    let (before, rest) =
        config.split_once("    kubernetes_sd_configs:\n").context("no kubernetes_sd_configs")?;
    let (_, after) = rest.split_once("    relabel_configs:\n").context("no relabel_configs after it")?;
    let file = root().join(SCRATCH).join("prometheus.yml");
    fs::write(&file, format!("{before}    static_configs: []\n    relabel_configs:\n{after}"))?;
    run(command("promtool", &["check", "config"]).arg(file))
}
