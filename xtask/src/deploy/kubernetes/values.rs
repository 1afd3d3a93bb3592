//! Checks the chart's values: that it rejects invalid ones, that all are documented, that the memory limit follows from them, and
//! that a parent chart can set them.

use std::{fs, os::unix::fs::symlink};

use anyhow::{Context as _, Result, ensure};

use super::paths::{CHART, README, SCRATCH};
use crate::{
    folder::make_empty,
    host::tool,
    process::{command, output, root},
};

/// Values that the chart must reject, and part of the expected error.
const INVALID_VALUES: [(&str, &str); 31] = [
    ("user=admin", "'nonroot', 'root'"),
    ("privileged=true", "'privileged' not allowed"),
    ("webConfig.secret=web", "'secret' not allowed"),
    ("port=80", "/port"),
    ("args[0]=--listen=0.0.0.0:1", "/args/0"),
    ("args[0]=--workloads=1", "/args/0"),
    ("env[0].name=BIOLAT_NODE_NAME", "/env/0"),
    ("workloads=0", "/workloads"),
    ("workloads=on", "/workloads"),
    ("slowNames=all", "/slowNames"),
    ("cgroupPressure=some", "/cgroupPressure"),
    ("volumeNames=all", "/volumeNames"),
    ("volumeNames=true,user=root", "root could read the Secrets"),
    ("kubeletFolder=kubelet", "/kubeletFolder"),
    ("args[0]=--slow-names=file", "/args/0"),
    ("args[0]=--history-memory=1MiB", "/args/0"),
    ("historyMemory=0", "/historyMemory"),
    ("historyFolder=/var/lib/biolat", "set user: root"),
    ("historyFolder=/var/lib/biolat,user=root,historyMemory=off", "set historyMemory"),
    ("maxUnavailable=0", "/maxUnavailable"),
    ("seccompProfile.type=Localhost", "localhostProfile"),
    ("image.digest=sha256:0", "/image/digest"),
    ("node.cpus=0", "/node/cpus"),
    ("livenessProbe.exec.command[0]=true", "'exec' not allowed"),
    ("livenessProbe.successThreshold=2", "'successThreshold' not allowed"),
    ("monitor.sampleLimit=many", "/monitor/sampleLimit"),
    ("prometheusRule.runbookUrl=runbook.md#a", "/prometheusRule/runbookUrl"),
    ("extraManifests[0]=1", "/extraManifests/0"),
    ("podMonitor.enabled=true,serviceMonitor.enabled=true", "scraped twice"),
    (
        "podMonitor.enabled=true,dashboard.enabled=true,monitor.nativeHistograms=false",
        "set histograms=classic",
    ),
    (
        "podMonitor.enabled=true,dashboard.enabled=true,histograms=classic",
        "needs monitor.nativeHistograms=false",
    ),
];

/// Values, and the memory limit according to the README's formula.
const MEMORY: [(&str, &str); 8] = [
    ("node.cpus=384,node.drives=21,node.volumes=0", "640Mi"),
    ("node.cpus=128,node.drives=84", "752Mi"),
    ("node.cpus=128,node.drives=84,historyMemory=off", "736Mi"),
    ("node.cpus=128,node.drives=84,historyMemory=64", "800Mi"),
    ("node.cpus=384,node.drives=21", "688Mi"),
    ("node.cpus=384,node.drives=21,workloads=off", "544Mi"),
    ("node.cpus=2,node.drives=1", "128Mi"),
    ("resources.limits.memory=1Gi", "1Gi"),
];

/// Slot size in the chart's formula, and the source file with the line that asserts it.
const SLOT: (&str, &str, &str) =
    ("mul $cpus 5888 -}}", "biolat-common/src/size.rs", "size_of::<Counters>() == 5888");

/// Values, and the option that follows from them.
const SLOW_NAMES: [(&str, &str); 4] = [
    ("user=nonroot", "--slow-names=off"),
    ("slowNames=false", "--slow-names=off"),
    ("slowNames=process", "--slow-names=process"),
    ("slowNames=file", "--slow-names=file"),
];

const PARENT: &str = concat!(
    "{apiVersion: v2, name: parent, version: 1.0.0, dependencies: [{name: biolat, condition: biolat.enabled, version: ",
    env!("CARGO_PKG_VERSION"),
    "}]}"
);
const PARENT_VALUES: &str =
    "{global: {imageRegistry: mirror.example, anything: {else: 1}}, biolat: {enabled: true}}";

/// Values, and whether the kubelet's directories are mounted.
const VOLUME_NAMES: [(&str, bool); 4] = [
    ("user=nonroot", true),
    ("volumeNames=true,kubeletFolder=/data/kubelet", true),
    ("volumeNames=false", false),
    ("user=root", false),
];

/// Values, and whether the node's cgroups are mounted.
const CGROUP_PRESSURE: [(&str, bool); 3] =
    [("user=nonroot", false), ("cgroupPressure=true", true), ("cgroupPressure=true,workloads=off", false)];

pub(super) fn check() -> Result<()> {
    check_invalid()?;
    check_slow_names()?;
    check_cgroup_pressure()?;
    check_volume_names()?;
    check_memory()?;
    check_documented()
}

fn check_invalid() -> Result<()> {
    for (values, named) in INVALID_VALUES {
        let rendering =
            command(tool("bin/helm"), &["template", "biolat", CHART, "--set", values]).output()?;
        let error = String::from_utf8_lossy(&rendering.stderr);
        ensure!(!rendering.status.success(), "the chart accepts {values}, expected an error");
        ensure!(error.contains(named), "the chart's error for {values} does not contain {named}: {error}");
    }
    Ok(())
}

/// Renders the DaemonSet with these values.
fn daemonset(values: &str) -> Result<String> {
    let arguments = ["template", "biolat", CHART, "--set", values, "--show-only", "templates/daemonset.yaml"];
    output(&mut command(tool("bin/helm"), &arguments))
}

fn check_slow_names() -> Result<()> {
    for (values, option) in SLOW_NAMES {
        let expected = format!("- {option}\n");
        ensure!(daemonset(values)?.contains(&expected), "{values}: the daemon's options lack {option}");
    }
    Ok(())
}

fn check_cgroup_pressure() -> Result<()> {
    for (values, are_mounted) in CGROUP_PRESSURE {
        let rendered = daemonset(values)?;
        for line in ["--cgroupfs=/cgroups\n", "mountPath: /cgroups\n", "path: /sys/fs/cgroup\n"] {
            ensure!(rendered.contains(line) == are_mounted, "{values}: expected {line}: {are_mounted}");
        }
    }
    Ok(())
}

fn check_volume_names() -> Result<()> {
    for (values, are_mounted) in VOLUME_NAMES {
        let is_mounted = daemonset(values)?.contains("mountPath: /var/lib/kubelet/pods\n");
        ensure!(is_mounted == are_mounted, "{values}: the kubelet's directories are mounted: {is_mounted}");
    }
    Ok(())
}

fn check_memory() -> Result<()> {
    for (values, limit) in MEMORY {
        let rendered = daemonset(values)?;
        let expected = format!("limits:\n              memory: {limit}\n");
        ensure!(rendered.contains(&expected), "{values}: the memory limit is not {limit}");
    }
    let (of_chart, file, of_code) = SLOT;
    let (chart, code) = (read(&format!("{CHART}/templates/_pod.tpl"))?, read(file)?);
    ensure!(
        chart.contains(of_chart) && code.contains(of_code),
        "the memory limit of {CHART} does not use the size of a slot in {file}"
    );
    Ok(())
}

/// Checks that the README's table lists the top-level values of `values.yaml` in the same order, each with its nested values.
fn check_documented() -> Result<()> {
    let values = read(&format!("{CHART}/values.yaml"))?;
    let readme = read(README)?;
    let table = readme.split_once("\n## Values\n").map_or("", |(_, table)| table);
    let mut rows = table.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let mut row = ("", "");
    for line in values.lines() {
        let Some((name, _)) = line.split_once(':') else { continue };
        if name.starts_with(|first: char| first.is_ascii_lowercase()) {
            row = rows.next().unwrap_or_default();
            ensure!(row.0 == name, "the table in {README} has {} where values.yaml has {name}", row.0);
        } else if let Some(name) = name.strip_prefix("  ")
            && name.chars().all(|letter| letter.is_ascii_alphabetic())
        {
            ensure!(row.1.contains(&format!("`{name}`")), "the table in {README}: {} lacks {name}", row.0);
        }
    }
    ensure!(rows.next().is_none(), "the table in {README} has values that values.yaml lacks");
    let schema: serde_json::Value = serde_json::from_str(&read(&format!("{CHART}/values.schema.json"))?)?;
    for name in schema["properties"].as_object().context("the schema has no properties")?.keys() {
        // Only a parent chart sets `enabled`.
        let is_value = name == "enabled" || values.contains(&format!("\n{name}:"));
        ensure!(is_value, "values.yaml lacks {name}, which the schema has");
    }
    Ok(())
}

/// Renders the chart as a dependency of a parent chart. Checks that nothing is rendered if the dependency is disabled.
pub(super) fn rendered_by_parent() -> Result<String> {
    let folder = root().join(SCRATCH).join("parent");
    make_empty(&folder.join("charts"))?;
    symlink(root().join(CHART), folder.join("charts/biolat"))?;
    fs::write(folder.join("Chart.yaml"), PARENT)?;
    fs::write(folder.join("values.yaml"), PARENT_VALUES)?;
    let template = |set: &[&str]| {
        let mut helm = command(tool("bin/helm"), &["template", "parent", "--namespace", "platform"]);
        output(helm.arg(&folder).args(set))
    };
    let without = template(&["--set", "biolat.enabled=false"])?;
    ensure!(without.trim().is_empty(), "biolat.enabled=false of a parent chart renders {without}");
    let rendered = template(&[])?;
    let image = "image: mirror.example/biolat:";
    ensure!(rendered.contains(image), "rendered by a parent chart: expected {image}");
    Ok(rendered)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(root().join(path)).with_context(|| format!("cannot read {path}"))
}
