//! Checks that a container's I/O is counted under the names of its namespace, pod and container.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{control_plane::Cluster, patience::eventually, release::Release};

const NAMESPACE: &str = "work";
const POD: &str = "writer";
const CONTAINER: &str = "dd";

/// Requests per call of [`Writer::write`].
pub(super) const WRITES: u64 = 200;

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let writer = Writer::start(cluster)?;
    let release = Release::install(cluster, &[])?;
    release.wait()?;
    writer.write()?;
    writer.wait_for(&release, WRITES)?;
    writer.write()?;
    writer.wait_for(&release, 2 * WRITES)?;
    Ok(format!("{POD}/{NAMESPACE}/{CONTAINER} has the {} writes of the pod", 2 * WRITES))
}

/// A pod that writes on request. Pod Security `restricted` allows it. Removed on drop.
pub(super) struct Writer<'a>(&'a Cluster);

impl<'a> Writer<'a> {
    pub(super) fn start(cluster: &'a Cluster) -> Result<Self> {
        let writer = Self(cluster);
        cluster.apply(&namespace(NAMESPACE))?;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": { "name": POD, "namespace": NAMESPACE },
            "spec": {
                "terminationGracePeriodSeconds": 0,
                "securityContext": {
                    "runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": { "type": "RuntimeDefault" },
                },
                "containers": [{
                    "name": CONTAINER, "image": super::busybox::IMAGE,
                    "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
                    "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
                }],
                "volumes": [{ "name": "data", "emptyDir": {} }],
            },
        });
        // A new namespace has no service account at first.
        eventually(|| cluster.apply(&pod.to_string()))?;
        cluster.kubectl(&[
            "--namespace",
            NAMESPACE,
            "wait",
            "--for=condition=Ready",
            "pod/writer",
            "--timeout=90s",
        ])?;
        Ok(writer)
    }

    /// Writes blocks with direct I/O, which makes one request per block.
    pub(super) fn write(&self) -> Result<()> {
        let count = format!("count={WRITES}");
        let dd =
            ["/bin/busybox", "dd", "if=/dev/zero", "of=/data/file", "bs=4k", "oflag=direct", "conv=notrunc"];
        let exec = ["--namespace", NAMESPACE, "exec", POD, "--"];
        self.0.kubectl(&[&exec[..], &dd, &[&count]].concat()).map(drop)
    }

    /// Waits until a release has counted these writes. On a busy machine the probe can miss some, which the audit then reports.
    pub(super) fn wait_for(&self, release: &Release<'_>, expected: u64) -> Result<()> {
        eventually(|| {
            let metrics = release.metrics()?;
            let (counted, missed) = (writes(&metrics)?, missed_writes(&metrics)?);
            let is_exact = counted <= expected && counted + missed >= expected && counted > expected / 2;
            ensure!(
                is_exact,
                "{POD} wrote {expected} blocks, and biolat counted {counted} and missed {missed}"
            );
            Ok(())
        })
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let _ = self.0.kubectl(&["delete", "namespace", NAMESPACE]);
    }
}

/// Returns the manifest of a namespace.
pub(super) fn namespace(name: &str) -> String {
    json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } }).to_string()
}

/// Returns the container's writes to all devices.
fn writes(metrics: &str) -> Result<u64> {
    let names = format!(r#",namespace="{NAMESPACE}",pod="{POD}",container="{CONTAINER}","#);
    let info =
        metrics.lines().find(|line| line.starts_with("biolat_workload_info{") && line.contains(&names));
    let info = info.with_context(|| format!("no biolat_workload_info with {names}"))?;
    let cgroup = info.split('"').nth(1).context("biolat_workload_info has no label")?;
    let labels = format!(r#"op="write",cgroup="{cgroup}"}} "#);
    sum(metrics, "biolat_workload_ios_total{", &labels)
}

/// Returns the number of missed writes across all devices and workloads.
fn missed_writes(metrics: &str) -> Result<u64> {
    sum(metrics, "biolat_unseen_completions_total{", r#"op="write"} "#)
}

/// Returns the sum over a metric's series whose labels end with `labels`.
fn sum(metrics: &str, name: &str, labels: &str) -> Result<u64> {
    let counts = metrics.lines().filter(|line| line.starts_with(name));
    counts.filter_map(|line| line.split_once(labels)).map(|(_, count)| Ok(count.parse::<u64>()?)).sum()
}
