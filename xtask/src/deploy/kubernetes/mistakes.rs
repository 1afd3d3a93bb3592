//! Makes deliberate mistakes in the rendered manifests to verify that the checker finds them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

use super::{paths::CHART, schemas::findings};

/// The rendered manifest, a string in it, its replacement, and part of the expected finding.
const MISTAKES: [(&str, &str, &str, &str); 32] = [
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
        "default",
        " path: /var/lib/kubelet/pods",
        " path: /var/lib/kubelet",
        "has the host path /var/lib/kubelet",
    ),
    (
        "default",
        "/var/lib/kubelet/pods\n              readOnly: true",
        "/var/lib/kubelet/pods",
        "may write to kubelet-pods",
    ),
    (
        "default",
        "mountPropagation: HostToContainer",
        "mountPropagation: Bidirectional",
        "kubelet-pods has the wrong mount propagation",
    ),
    ("default", "runAsUser: 65532", "runAsUser: 0", "has the host path /var/lib/kubelet/pods"),
    (
        "root",
        "      containers:",
        "      volumes: [{name: x, hostPath: {path: /}}]\n      containers:",
        "has the host path /",
    ),
    ("kept", " path: /sys/fs/bpf/biolat", " path: /sys/fs/bpf", "has the host path /sys/fs/bpf"),
    ("kept", "runAsUser: 0", "runAsUser: 65532", "may write to kept-probe"),
    ("kept", " path: /var/lib/biolat", " path: /var/lib", "has the host path /var/lib"),
    ("kept", "runAsUser: 0", "runAsUser: 65532", "may write to kept-history"),
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
    (
        "default",
        "drop: [ALL]\n      resources:",
        "add: [BPF]\n      resources:",
        "its capabilities are not exactly []",
    ),
    ("default", "kind: ServiceAccount", "kind: ClusterRole", "must not create this kind"),
    (
        "everything",
        "targetLabel: node",
        "targetLabel: host",
        "the node's name is in the labels ['instance', 'host']",
    ),
    ("everything", "- record:", "- recorded:", "the operator rejects spec.groups"),
    ("everything", "Storage", LONG, "too large for client-side kubectl apply"),
    (
        "default",
        "hook-succeeded,hook-failed\n",
        "hook-succeeded\n",
        "uninstalling leaves it behind after hook-failed",
    ),
    ("default", "creation,hook-succeeded", "creation", "uninstalling leaves it behind after hook-succeeded"),
    ("default", "restartPolicy: OnFailure", "restartPolicy: Never", "it does not retry for a minute"),
    ("tls", "PrometheusProto", "Protobuf", "the operator rejects spec.scrapeProtocols.0"),
];

/// A string long enough to push the largest object over the limit.
const LONG: &str = match str::from_utf8(&[b'x'; 30_000]) {
    Ok(text) => text,
    Err(_) => "",
};

pub(super) fn check(rendered: &BTreeMap<String, String>) -> Result<()> {
    let mut mistaken = BTreeMap::new();
    for (number, (of, from, to, _)) in MISTAKES.iter().enumerate() {
        let text = rendered.get(*of).with_context(|| format!("no {of}-values.yaml in {CHART}/ci"))?;
        ensure!(text.contains(from), "{of}-values.yaml no longer renders {from}");
        mistaken.insert(format!("{number:02}"), text.replacen(from, to, 1));
    }
    let findings = findings("mistaken", &mistaken)?;
    for (number, (_, _, to, expected)) in MISTAKES.iter().enumerate() {
        let found = findings.get(&format!("{number:02}")).map_or(&[][..], Vec::as_slice);
        ensure!(
            found.iter().any(|found| found.contains(expected)),
            "the checker does not find the mistake {to}: expected {expected}, got {found:?}"
        );
    }
    Ok(())
}
