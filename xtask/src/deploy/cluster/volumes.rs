//! Checks the names of persistent volumes: of a drive, of directories of a file system, and of a raw block device, mounted after
//! biolat has started. Also checks the rules, the dashboard's row and `biolat hist` with them, and that the pod cannot read Secrets.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{
    config::NODE, control_plane::Cluster, patience::eventually, prometheus::Prometheus, release::Release,
    workloads::namespace,
};
use crate::process::root;

const NAMESPACE: &str = "shop";
const CLASS: &str = "local";
const DASHBOARD: &str = "deploy/grafana/biolat.json";

pub(super) fn check(cluster: &Cluster) -> Result<String> {
    let drives = Drives::attach(cluster)?;
    let release = Release::install(cluster, &["--set", "args={--loop}"])?;
    release.wait()?;
    let volumes = drives.volumes();
    let _shop = Shop::open(cluster, &volumes)?;

    eventually(|| {
        let metrics = release.metrics()?;
        for volume in &volumes {
            let (drive, name) = (volume.drive.trim_start_matches("/dev/"), volume.name);
            let series = format!(
                r#"biolat_device_holder_info{{device="{drive}",holder="{drive}",kind="persistent_volume",name="{name}",depth="1"}} 1"#
            );
            ensure!(metrics.contains(&series), "no {series}");
        }
        Ok(())
    })?;
    check_tool(&release, &drives)?;
    check_secrets(cluster, &release)?;
    let queries = check_queries(cluster, &release, &volumes)?;
    Ok(format!(
        "{} volumes are named; {queries} queries of claims have data; Secrets are unreadable",
        volumes.len()
    ))
}

/// A persistent volume, and its claim.
struct Volume<'a> {
    name: &'static str,
    claim: &'static str,
    drive: &'a str,
    /// A device or a directory.
    path: String,
    mode: &'static str,
}

/// Loop devices. The second has a mounted file system with two directories.
struct Drives<'a> {
    cluster: &'a Cluster,
    whole: String,
    shared: String,
    raw: String,
}

/// Where the shared drive is mounted.
const DISKS: &str = "/var/lib/disks";

impl<'a> Drives<'a> {
    fn attach(cluster: &'a Cluster) -> Result<Self> {
        let attach = |name: &str| -> Result<String> {
            let file = cluster.file(name);
            cluster.on_node(&["truncate", "--size=64M", &file])?;
            Ok(cluster.on_node(&["losetup", "--find", "--show", &file])?.trim().to_owned())
        };
        let drives =
            Self { cluster, whole: attach("whole")?, shared: attach("shared")?, raw: attach("raw")? };
        cluster.on_node(&["mkfs.ext4", "-q", &drives.shared])?;
        cluster.on_node(&["mkdir", DISKS])?;
        cluster.on_node(&["mount", &drives.shared, DISKS])?;
        cluster.on_node(&["mkdir", &format!("{DISKS}/a"), &format!("{DISKS}/b")])?;
        Ok(drives)
    }

    fn volumes(&self) -> [Volume<'_>; 4] {
        let volume =
            |name, claim, drive, path: &str, mode| Volume { name, claim, drive, path: path.to_owned(), mode };
        [
            volume("pv-disk", "data-db-0", &self.whole, &self.whole, "Filesystem"),
            volume("pv-dir-a", "logs-db-0", &self.shared, &format!("{DISKS}/a"), "Filesystem"),
            volume("pv-dir-b", "cache", &self.shared, &format!("{DISKS}/b"), "Filesystem"),
            volume("pv-raw", "raw", &self.raw, &self.raw, "Block"),
        ]
    }
}

impl Drop for Drives<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.on_node(&["umount", DISKS]);
        for drive in [&self.whole, &self.shared, &self.raw] {
            let _ = self.cluster.on_node(&["losetup", "--detach", drive]);
        }
    }
}

/// A StatefulSet with two claims that writes to both, and a pod with a claim and a raw block device. Removed on drop.
struct Shop<'a> {
    cluster: &'a Cluster,
    volumes: Vec<&'static str>,
}

impl<'a> Shop<'a> {
    fn open(cluster: &'a Cluster, volumes: &[Volume<'_>]) -> Result<Self> {
        let shop = Self { cluster, volumes: volumes.iter().map(|volume| volume.name).collect() };
        cluster.apply(&namespace(NAMESPACE))?;
        cluster.apply(&list(volumes.iter().map(manifest).chain([
            json!({ "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": CLASS },
                "provisioner": "kubernetes.io/no-provisioner" }),
            claim("cache", "Filesystem"),
            claim("raw", "Block"),
            json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "password", "namespace": NAMESPACE },
                "stringData": { "key": "confidential" } }),
        ])))?;
        let template = |name: &str| {
            let mut claim = claim(name, "Filesystem");
            claim["metadata"] = json!({ "name": name });
            claim
        };
        let write = "while :; do for to in /data /logs; do \
                     /bin/busybox dd if=/dev/zero of=$to/file bs=4k count=16 oflag=direct conv=notrunc; done; \
                     /bin/busybox sleep 0.2; done";
        let writer = container(
            json!(["sh", "-c", write]),
            json!({ "volumeMounts": [
                { "name": "data", "mountPath": "/data" }, { "name": "logs", "mountPath": "/logs" },
                { "name": "password", "mountPath": "/password" },
            ]}),
        );
        let idle = container(
            json!(["/bin/busybox", "sleep", "inf"]),
            json!({
                "volumeMounts": [{ "name": "cache", "mountPath": "/cache" }],
                "volumeDevices": [{ "name": "raw", "devicePath": "/raw" }],
            }),
        );
        let of_claim = |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
        let labels = json!({ "app": "db" });
        let pods = list([
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": { "name": "db", "namespace": NAMESPACE },
                "spec": {
                    "serviceName": "db", "selector": { "matchLabels": labels },
                    "volumeClaimTemplates": [template("data"), template("logs")],
                    "template": {
                        "metadata": { "labels": labels },
                        "spec": pod(&writer, json!([{ "name": "password", "secret": { "secretName": "password" } }])),
                    },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "idle", "namespace": NAMESPACE },
                "spec": pod(&idle, json!([of_claim("cache"), of_claim("raw")])),
            }),
        ]);
        // A new namespace has no service account at first.
        eventually(|| cluster.apply(&pods))?;
        for pod in ["pod/db-0", "pod/idle"] {
            let wait = ["--namespace", NAMESPACE, "wait", "--for=condition=Ready", pod, "--timeout=5s"];
            eventually(|| cluster.kubectl(&wait))?;
        }
        Ok(shop)
    }
}

impl Drop for Shop<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.kubectl(&["delete", "namespace", NAMESPACE]);
        let _ = self.cluster.kubectl(&[&["delete", "persistentvolume"], &self.volumes[..]].concat());
    }
}

fn list(items: impl IntoIterator<Item = Value>) -> String {
    json!({ "apiVersion": "v1", "kind": "List", "items": items.into_iter().collect::<Vec<_>>() }).to_string()
}

/// Returns the manifest of a volume that only its claim can use.
fn manifest(volume: &Volume<'_>) -> Value {
    let of_device = volume.mode == "Filesystem" && volume.path == volume.drive;
    json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": volume.name },
        "spec": {
            "capacity": { "storage": "32Mi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS,
            "persistentVolumeReclaimPolicy": "Retain", "volumeMode": volume.mode,
            "claimRef": { "namespace": NAMESPACE, "name": volume.claim },
            "local": { "path": volume.path, "fsType": of_device.then_some("ext4") },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                { "key": "kubernetes.io/hostname", "operator": "In", "values": [NODE] },
            ]}]}},
        },
    })
}

fn claim(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "volumeMode": mode,
            "resources": { "requests": { "storage": "32Mi" } },
        },
    })
}

/// Returns a container that Pod Security `restricted` allows.
fn container(command: Value, volumes: Value) -> Value {
    let mut container = volumes;
    container["name"] = json!("shop");
    container["image"] = json!(super::busybox::IMAGE);
    container["command"] = command;
    container["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    container
}

fn pod(container: &Value, volumes: Value) -> Value {
    json!({
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 1000, "seccompProfile": { "type": "RuntimeDefault" },
        },
        "containers": [container], "volumes": volumes,
    })
}

/// Runs the tool in biolat's pod.
fn tool(release: &Release<'_>, arguments: &[&str]) -> Result<String> {
    release.kubectl(&[&["exec", "daemonset/biolat", "--", "/biolat"], arguments].concat())
}

fn check_tool(release: &Release<'_>, drives: &Drives<'_>) -> Result<()> {
    let printed = tool(release, &["hist", "--by", "claim", "--host", "localhost:9976", "10", "1"])?;
    let (whole, shared) =
        (drives.whole.trim_start_matches("/dev/"), drives.shared.trim_start_matches("/dev/"));
    for part in [
        format!("pv-disk on {whole}: "),
        format!("pv-dir-a on {shared}: "),
        format!("the figures of {shared} include the I/O of pv-dir-b"),
    ] {
        ensure!(printed.contains(&part), "biolat hist --by claim does not print {part:?}: {printed}");
    }
    Ok(())
}

/// Checks that biolat's pod cannot open a Secret in the kubelet's directories, at the path at which root of the node can.
fn check_secrets(cluster: &Cluster, release: &Release<'_>) -> Result<()> {
    let pod = ["--namespace", NAMESPACE, "get", "pod", "db-0", "--output=jsonpath={.metadata.uid}"];
    let uid = cluster.kubectl(&pod)?;
    let secret = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~secret/password/key");
    let content = cluster.on_node(&["cat", &secret])?;
    ensure!(content == "confidential", "{secret} contains {content:?}");
    let error =
        tool(release, &["hist", "--file", &secret]).err().context("biolat's pod can read a Secret")?;
    ensure!(
        format!("{error:#}").contains("Permission denied"),
        "biolat fails to read {secret} with {error:#}"
    );
    Ok(())
}

/// Checks that the rules know each claim, and that each query of the dashboard's row has data. Returns the number of queries.
fn check_queries(cluster: &Cluster, release: &Release<'_>, volumes: &[Volume<'_>]) -> Result<usize> {
    let prometheus = Prometheus::start(cluster, release)?;
    for volume in volumes {
        let labels = format!(r#"namespace="{NAMESPACE}", persistentvolumeclaim="{}""#, volume.claim);
        let drive = format!(
            r#"device="{}", persistentvolume="{}""#,
            volume.drive.trim_start_matches("/dev/"),
            volume.name
        );
        for query in [
            format!(
                "namespace_persistentvolumeclaim_device:biolat_device_holder_info:group{{{labels}, {drive}}}"
            ),
            format!("namespace_persistentvolumeclaim:biolat_oldest_inflight_seconds:max{{{labels}}}"),
        ] {
            eventually(|| prometheus.has_data(&query))?;
        }
    }
    for claim in ["data-db-0", "logs-db-0"] {
        let labels = format!(r#"namespace="{NAMESPACE}", persistentvolumeclaim="{claim}", op="write""#);
        for metric in [
            "biolat_total_latency_seconds:count_rate5m",
            "biolat_total_latency_seconds:p99_rate5m",
            "biolat_io_bytes:rate5m",
        ] {
            eventually(|| {
                prometheus.has_data(&format!("namespace_persistentvolumeclaim_op:{metric}{{{labels}}} > 0"))
            })?;
        }
    }
    let queries = dashboard_queries()?;
    for query in &queries {
        eventually(|| prometheus.has_data(query))?;
    }
    Ok(queries.len())
}

/// Returns the queries of the dashboard's row on claims, as Grafana sends them with `All` selected.
fn dashboard_queries() -> Result<Vec<String>> {
    let text =
        fs::read_to_string(root().join(DASHBOARD)).with_context(|| format!("cannot read {DASHBOARD}"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let rows = dashboard["panels"].as_array().context("no panels")?;
    let row = rows.iter().find(|row| row["title"] == "Claims").context("no row Claims")?;
    let targets =
        row["panels"].as_array().into_iter().flatten().flat_map(|panel| panel["targets"].as_array());
    let queries = targets.flatten().map(|target| {
        let mut query =
            target["expr"].as_str().context("a target without a query")?.replace("$__range", "1m");
        for variable in ["$cluster", "$model", "$node", "$device", "$op"] {
            query = query.replace(variable, ".*");
        }
        Ok(query)
    });
    queries.collect()
}
