"""Validates manifests against the schemas of Kubernetes and the Prometheus operator, and checks the privileges they grant.

Arguments: the directory of the operator's CRDs, and manifest files. Prints one finding per line: the file, a tab, the object
and the finding. Exits with 0 even if there are findings, because the caller knows which to expect.
"""

import json
import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

# The oldest Kubernetes version that the chart supports, and the newest with published schemas.
KUBERNETES = ["1.25", "1.37"]

# Host namespaces that biolat's pod must not share.
HOST_NAMESPACES = ["hostNetwork", "hostPID", "hostIPC"]

# Host directories that pods may read. The names of the links in /var/log/containers contain pod names.
LOGS = "/var/log/containers"
CGROUPS = "/sys/fs/cgroup"
# The kubelet's directories, by mount point. Mounts in them name persistent volumes. They contain Secrets, which root could read.
VOLUMES = {
    "/var/lib/kubelet/pods": ("/var/lib/kubelet/pods", "/data/kubelet/pods"),
    "/var/lib/kubelet/plugins": ("/var/lib/kubelet/plugins", "/data/kubelet/plugins"),
}

# Capabilities that pods may have, and host directories that they may read.
ALLOWED = {"DaemonSet": (["BPF", "PERFMON"], [LOGS, CGROUPS]), "Job": ([], []), "Pod": ([], [])}

# Host directories that root may write to, and their mount points: the probe is kept in a BPF file system, the history in a
# separate directory. A runtime cannot create a mount point below a container's /sys.
KEPT_FOLDERS = [("kept-probe", "/sys/fs/bpf/biolat"), ("kept-history", "/var/lib/biolat")]
KEPT_MOUNTS = [("kept-probe", "/kept-probe"), ("kept-history", "/var/lib/biolat")]

# An object's annotations may take 256 KiB, and client-side `kubectl apply` stores the whole object in one of them. A tenth is
# reserved for users' labels and annotations.
MAX_ANNOTATIONS = 256 * 1024 * 9 // 10
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

# Kinds that the chart may create. None grants cluster permissions.
KINDS = {*ALLOWED, "ConfigMap", "NetworkPolicy", "Service", "ServiceAccount"}


def main(crds, files):
    # Only these CRDs of the operator matter here, and PyYAML cannot parse some of the others.
    custom = [read(file) for name in ("*monitors.yaml", "*rules.yaml") for file in Path(crds).glob(name)]
    custom = {crd["spec"]["names"]["kind"]: crd for crd in custom}
    for file in files:
        with open(file) as text:
            for manifest in filter(None, yaml.safe_load_all(text)):
                kind, name = manifest["kind"], manifest["metadata"]["name"]
                findings = check_custom(manifest, custom[kind]) if kind in custom else check_builtin(manifest)
                findings += check_size(manifest) + check_hook(manifest)
                if kind not in KINDS | custom.keys():
                    findings.append("the chart must not create this kind")
                if kind in ALLOWED:
                    findings += check_privileges(manifest["spec"].get("template", manifest)["spec"], *ALLOWED[kind])
                if kind == "NetworkPolicy":
                    findings += check_network_policy(manifest["spec"])
                if kind in ("PodMonitor", "ServiceMonitor"):
                    findings += check_targets(manifest["spec"])
                for finding in findings:
                    print(f"{file}\t{kind} {name}: {finding}")


def read(file):
    with open(file) as text:
        return yaml.safe_load(text)


def check_size(manifest):
    """Checks that the object's annotations, including the one that kubectl adds, do not exceed the limit."""
    annotations = manifest["metadata"].get("annotations") or {}
    applied = manifest | {"metadata": manifest["metadata"] | {"annotations": annotations}}
    # Escape like Go's encoder.
    text = json.dumps(applied, separators=(",", ":"), ensure_ascii=False) + "\n"
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    annotations = annotations | {LAST_APPLIED: text}
    size = sum(len(name.encode()) + len(value.encode()) for name, value in annotations.items())
    too_large = f"too large for client-side kubectl apply: {size} bytes of annotations, expected at most {MAX_ANNOTATIONS}"
    return [too_large] if size > MAX_ANNOTATIONS else []


def check_hook(manifest):
    """Checks that a hook leaves nothing behind, because Helm does not uninstall hooks, and that a pod retries for a minute."""
    annotations = manifest["metadata"].get("annotations") or {}
    if "helm.sh/hook" not in annotations:
        return []
    ends = ["hook-succeeded", "hook-failed"] if manifest["kind"] == "Pod" else ["hook-succeeded"]
    deleted = annotations["helm.sh/hook-delete-policy"].split(",")
    findings = [f"uninstalling leaves it behind after {end}" for end in ends if end not in deleted]
    if manifest["kind"] == "Pod":
        spec = manifest["spec"]
        # The kubelet restarts a failed container after 10, 20 and 40 s: three retries take 70 s.
        if spec["restartPolicy"] != "OnFailure" or spec.get("activeDeadlineSeconds", 0) < 90:
            findings.append("it does not retry for a minute")
    return findings


def check_builtin(manifest):
    """Validates against the schemas of Kubernetes. Unknown fields are errors."""
    findings = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(map(str, error.path))
            findings.append(f"Kubernetes {version} rejects {where}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            findings.append(f"Kubernetes {version} has no {manifest['apiVersion']}")
    return findings


def check_custom(manifest, crd):
    """Validates against the operator's CRD. Unknown fields are errors, as with kubectl."""
    version = next(version for version in crd["spec"]["versions"] if version["storage"])
    schema = close(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    errors = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return [f"the operator rejects {'.'.join(map(str, error.path))}: {error.message}" for error in errors]


def close(schema):
    if isinstance(schema, list):
        return [close(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return closed


def check_privileges(pod, capabilities, host_paths):
    """Checks the guarantees of docs/security.md and the README."""
    findings = [f"{field} is set" for field in HOST_NAMESPACES if pod.get(field)]
    root = pod["securityContext"].get("runAsUser") == 0
    if host_paths and not root:
        host_paths = [*host_paths, *(path for paths in VOLUMES.values() for path in paths)]
    if pod.get("automountServiceAccountToken") is not False:
        findings.append("it has a service account token")
    for volume in pod.get("volumes", []):
        kinds = volume.keys() - {"name", "projected", "hostPath"}
        kinds |= {kind for source in volume.get("projected", {}).get("sources", []) for kind in source} - {"secret"}
        findings += [f"volume {volume['name']} has the type {kind}" for kind in sorted(kinds)]
        is_kept = root and (volume["name"], volume.get("hostPath", {}).get("path")) in KEPT_FOLDERS
        if not is_kept and "hostPath" in volume and (path := volume["hostPath"]["path"]) not in host_paths:
            findings.append(f"volume {volume['name']} has the host path {path}")
    of_pod = pod["securityContext"]
    if of_pod["seccompProfile"]["type"] == "Unconfined":
        findings.append("it runs without a seccomp profile")
    if len(pod["containers"]) != 1 or pod.get("initContainers"):
        findings.append("it has more than one container")
    for container in pod["containers"]:
        security = container["securityContext"]
        if not root and of_pod.get("runAsNonRoot") is not True:
            findings.append("it may run as root")
        if security.get("allowPrivilegeEscalation") not in ([False] if root else [False, True]):
            findings.append("allowPrivilegeEscalation does not match its user")
        if security.get("privileged") is not False:
            findings.append("it is privileged")
        if security.get("readOnlyRootFilesystem") is not True:
            findings.append("it may write to its root file system")
        for mount in container.get("volumeMounts", []):
            if mount.get("readOnly") is not True and not (root and (mount["name"], mount["mountPath"]) in KEPT_MOUNTS):
                findings.append(f"it may write to {mount['name']}")
            if mount.get("mountPropagation") != ("HostToContainer" if mount["mountPath"] in VOLUMES else None):
                findings.append(f"{mount['name']} has the wrong mount propagation")
        of_container = security.get("capabilities", {})
        if of_container.get("drop") != ["ALL"] or sorted(of_container.get("add", [])) != capabilities:
            findings.append(f"its capabilities are not exactly {capabilities}")
        if set(container["resources"]) < {"requests", "limits"} or "memory" not in container["resources"]["limits"]:
            findings.append("it has no memory limit")
    return findings


def check_network_policy(policy):
    """Checks that the policy allows ingress only to the metrics port, and no egress."""
    ports = [port["port"] for rule in policy["ingress"] for port in rule.get("ports", [])]
    findings = [] if ports == ["metrics"] else [f"it allows ingress to {ports}"]
    if policy.get("egress") or "Egress" not in policy["policyTypes"]:
        findings.append("it allows egress")
    return findings


def check_targets(monitor):
    """Checks that the labels instance and node are both set to the node's name."""
    (endpoint,) = monitor.get("endpoints") or monitor["podMetricsEndpoints"]
    node = ["__meta_kubernetes_pod_node_name"]
    labels = [rule["targetLabel"] for rule in endpoint["relabelings"] if rule.get("sourceLabels") == node]
    return [] if labels == ["instance", "node"] else [f"the node's name is in the labels {labels}"]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
