//! Checks that the API server, with the Prometheus operator's CRDs, accepts all manifests from client-side and server-side
//! `kubectl apply`. Also installs the plain manifest.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Result, ensure};

use super::{control_plane::Cluster, workloads::namespace};
use crate::{deploy::kubernetes, host::tool, process::root};

const FOLDER: &str = "deploy/kubernetes";
const PLAIN: &str = "biolat.yaml";

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let manifests = manifests()?;
    let lines = manifests.values().flat_map(|manifest| manifest.lines());
    let namespaces: BTreeSet<_> = lines.filter_map(|line| line.strip_prefix("  namespace: ")).collect();
    for name in &namespaces {
        cluster.apply(&namespace(name))?;
    }
    let outcome = apply_all(cluster, &manifests).and_then(|()| install(cluster));
    let namespaces: Vec<_> = namespaces.into_iter().collect();
    cluster.kubectl(&[&["delete", "namespace"], &namespaces[..]].concat())?;
    outcome?;
    Ok(format!("{} accepted by client-side and server-side apply; {PLAIN} runs", manifests.len()))
}

/// Applies each manifest as a dry run.
fn apply_all(cluster: &Cluster, manifests: &BTreeMap<String, String>) -> Result<()> {
    let operator = tool("prometheus-operator");
    cluster.kubectl(&["apply", "--server-side", "--filename", &operator.to_string_lossy()])?;
    cluster.kubectl(&["wait", "--for=condition=Established", "customresourcedefinitions", "--all"])?;
    let mut rejected = Vec::new();
    for (name, manifest) in manifests {
        let file = cluster.write(manifest)?;
        for side in ["--server-side=false", "--server-side"] {
            let applied = cluster.kubectl(&["apply", "--dry-run=server", side, "--filename", &file]);
            rejected.extend(applied.err().map(|error| format!("{name}: {error:#}")));
        }
    }
    ensure!(rejected.is_empty(), "{}", rejected.join("\n"));
    Ok(())
}

/// Installs the plain manifest.
fn install(cluster: &Cluster) -> Result<()> {
    let file = root().join(FOLDER).join(PLAIN);
    let file = file.to_string_lossy();
    cluster.kubectl(&["apply", "--filename", &file])?;
    cluster
        .kubectl(&["--namespace=biolat", "rollout", "status", "daemonset/biolat", "--timeout=90s"])
        .map(drop)
}

/// Returns the rendered charts, and the manifests next to the chart.
fn manifests() -> Result<BTreeMap<String, String>> {
    let mut manifests = kubernetes::rendered()?;
    for entry in fs::read_dir(root().join(FOLDER))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.ends_with(".yaml") {
            continue;
        }
        let manifest = fs::read_to_string(path)?;
        // A manifest with a generated name is meant for kubectl create.
        if !manifest.contains("generateName:") {
            manifests.insert(name, manifest);
        }
    }
    Ok(manifests)
}
