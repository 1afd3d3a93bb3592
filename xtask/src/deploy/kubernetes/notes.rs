//! Checks the notes that Helm prints after an installation.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::paths::CHART;
use crate::{
    host::tool,
    process::{command, output},
};

/// Values files in the chart's `ci/`, and text that the notes must contain for each of them.
const COMMANDS: [(&str, &[&str]); 3] = [
    (
        "root",
        &[
            "kubectl --namespace biolat describe daemonset biolat\n",
            "kubectl label --overwrite namespace biolat pod-security.kubernetes.io/enforce=privileged\n",
            "exec daemonset/biolat -- /biolat-daemon check --listen=0.0.0.0:9976 --workloads=256\n",
            "exec daemonset/biolat -- /biolat who --host localhost:9976 5 1\n",
        ],
    ),
    (
        "everything",
        &[
            "exec daemonset/disks -- /biolat-daemon check --listen='[::]':19976 --workloads=1000 --cgroupfs=/cgroups\n",
        ],
    ),
    ("kept", &[" --pin=/kept-probe\n", "deploy/kubernetes/unpin.yaml, with /sys/fs/bpf/biolat"]),
];

pub(super) fn check(rendered: &BTreeMap<String, String>) -> Result<()> {
    for (values, commands) in COMMANDS {
        let notes = notes(values)?;
        for command in commands {
            ensure!(notes.contains(command), "the notes for {values}-values.yaml lack {command}");
        }
    }
    check_selector(&notes("root")?, &rendered["root"])
}

/// Checks that the notes' selector matches the DaemonSet's pods, but not the `helm test` pod.
fn check_selector(notes: &str, manifests: &str) -> Result<()> {
    let selector = notes.split_once("--selector ").and_then(|(_, rest)| rest.split_whitespace().next());
    let selector = selector.context("the notes have no selector")?;
    let matches = |kind: &str| {
        let kind = format!("\nkind: {kind}\n");
        let manifest =
            manifests.split("\n---\n").find(|manifest| manifest.contains(&kind)).unwrap_or_default();
        selector.split(',').all(|label| {
            let label = label.replacen('=', ": ", 1);
            manifest.lines().any(|line| line.trim() == label)
        })
    };
    ensure!(matches("DaemonSet"), "the notes' selector {selector} does not match the DaemonSet's pods");
    ensure!(!matches("Pod"), "the notes' selector {selector} matches the pod of helm test");
    Ok(())
}

fn notes(values: &str) -> Result<String> {
    let install = ["install", "biolat", CHART, "--namespace", "biolat", "--dry-run=client", "--values"];
    let values = format!("{CHART}/ci/{values}-values.yaml");
    let printed = output(command(tool("bin/helm"), &install).arg(values))?;
    let (_, notes) = printed.split_once("\nNOTES:\n").context("helm install prints no notes")?;
    Ok(notes.to_owned())
}
