//! Writes the configuration of the cluster's programs: one certificate for all of them, and Pod Security `restricted` unless a
//! namespace says otherwise.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde_json::json;

use super::busybox;
use crate::process::quiet_output;

pub(super) const NODE: &str = "node1";
pub(super) const ADDRESS: &str = "10.99.0.1";
/// Address of the service "kubernetes", which is the API server itself.
pub(super) const API_SERVER: &str = "10.96.0.1";
pub(super) const NAME_SERVER: &str = "10.96.0.10";
pub(super) const SERVICES: &str = "10.96.0.0/16";
pub(super) const CONTAINERD: &str = "unix:///run/containerd/containerd.sock";

/// Writes the files to a directory.
pub(super) fn write(folder: &Path) -> Result<()> {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (certificate, key) = (path("certificate.pem"), path("key.pem"));
    fs::create_dir_all(folder.join("cni"))?;
    certify(&certificate, &key)?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "cluster",
        "clusters": [{ "name": "cluster", "cluster": { "server": format!("https://{API_SERVER}"), "certificate-authority": certificate } }],
        "users": [{ "name": "admin", "user": { "client-certificate": certificate, "client-key": key } }],
        "contexts": [{ "name": "cluster", "context": { "cluster": "cluster", "user": "admin" } }],
    });
    let security = "restricted";
    let admission = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AdmissionConfiguration",
        "plugins": [{ "name": "PodSecurity", "configuration": {
            "apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration",
            "defaults": { "enforce": security, "audit": security, "warn": security },
        }}],
    });
    let kubelet = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "address": ADDRESS,
        "authentication": { "x509": { "clientCAFile": certificate }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "tlsCertFile": certificate, "tlsPrivateKeyFile": key,
        "cgroupDriver": "cgroupfs", "failCgroupV1": false, "failSwapOn": false,
        "containerRuntimeEndpoint": CONTAINERD,
        "clusterDNS": [NAME_SERVER], "clusterDomain": "cluster.local", "resolvConf": "",
        "evictionHard": { "nodefs.available": "0%", "imagefs.available": "0%", "memory.available": "50Mi" },
        "imageGCHighThresholdPercent": 100,
    });
    let network = json!({
        "cniVersion": "1.0.0", "name": "pods", "plugins": [{ "type": "ptp", "ipam": {
            "type": "host-local", "subnet": "10.98.0.0/16", "routes": [{ "dst": "0.0.0.0/0" }],
        }}],
    });
    for (name, content) in [
        ("kubeconfig.json", kubeconfig),
        ("admission.json", admission),
        ("kubelet.json", kubelet),
        ("cni/pods.conflist", network),
    ] {
        fs::write(path(name), serde_json::to_vec_pretty(&content)?)?;
    }
    let network = path("cni");
    fs::write(
        path("containerd.toml"),
        format!(
            r#"version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  tolerate_missing_hugetlb_controller = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true  # lowering it takes CAP_SYS_RESOURCE
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{network}"
"#,
            image = busybox::IMAGE,
        ),
    )?;
    let names = format!(
        "cluster.local:53 {{
    bind {NAME_SERVER}
    errors
    kubernetes cluster.local {{
        endpoint https://{API_SERVER}
        tls {certificate} {key} {certificate}
    }}
}}
"
    );
    fs::write(path("Corefile"), names).context("cannot write the name server's configuration")
}

/// Creates a self-signed administrator certificate, for servers and clients.
fn certify(certificate: &str, key: &str) -> Result<()> {
    let names = format!("subjectAltName=IP:{ADDRESS},IP:{API_SERVER},DNS:{NODE}");
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", key, "-out"]);
    openssl.args([certificate, "-subj", "/O=system:masters/CN=admin", "-addext", &names]);
    quiet_output(&mut openssl).map(drop)
}
