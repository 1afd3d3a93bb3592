//! Checks that Prometheus discovers the pod with the permissions in `prometheus-rbac.yaml`, and nothing without them.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    config::{API_SERVER, NODE},
    control_plane::Cluster,
    patience::eventually,
    release::Release,
    workloads::namespace,
};
use crate::{host::tool, process::root};

const CONFIG: &str = "deploy/kubernetes/prometheus.yml";
const PERMISSIONS: &str = "deploy/kubernetes/prometheus-rbac.yaml";
/// Path of the service account in a pod.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let release = Release::install(cluster, &[])?;
    release.wait()?;
    cluster.apply(&namespace("monitoring"))?;
    let account = json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "prometheus", "namespace": "monitoring" },
    });
    cluster.apply(&account.to_string())?;
    let token = cluster.kubectl(&["--namespace=monitoring", "create", "token", "prometheus"])?;
    cluster.on_node(&["mkdir", "-p", ACCOUNT])?;
    let write = "printf %s \"$1\" >\"$0/token\" && cp \"$2\" \"$0/ca.crt\"";
    cluster.on_node(&["sh", "-c", write, ACCOUNT, &token, &cluster.file("certificate.pem")])?;

    let without = targets(cluster)?;
    ensure!(without.is_empty(), "without permissions Prometheus discovers {without:?}");
    cluster.apply(
        &fs::read_to_string(root().join(PERMISSIONS))
            .with_context(|| format!("cannot read {PERMISSIONS}"))?,
    )?;
    eventually(|| {
        let targets = targets(cluster)?;
        let are_right = targets.len() == 1 && targets[0]["instance"] == NODE && targets[0]["node"] == NODE;
        ensure!(are_right, "Prometheus discovers {targets:?}, expected the pod of {NODE}");
        Ok(())
    })?;
    Ok(format!("{PERMISSIONS} lets Prometheus discover {NODE}"))
}

/// Returns the labels of the targets that the scrape config discovers with the service account.
fn targets(cluster: &Cluster) -> Result<Vec<Value>> {
    let promtool = tool("bin/promtool");
    let host = format!("KUBERNETES_SERVICE_HOST={API_SERVER}");
    let found = cluster.on_node(&[
        "env",
        &host,
        "KUBERNETES_SERVICE_PORT=443",
        &promtool.to_string_lossy(),
        "check",
        "service-discovery",
        "--timeout=5s",
        &root().join(CONFIG).to_string_lossy(),
        "biolat",
    ])?;
    let found: Vec<Value> = serde_json::from_str(&found).context("cannot parse promtool's targets")?;
    Ok(found.into_iter().map(|target| target["labels"].clone()).filter(|labels| labels.is_object()).collect())
}
