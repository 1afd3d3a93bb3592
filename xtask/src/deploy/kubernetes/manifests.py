"""Whether manifests are what Kubernetes and the Prometheus operator take, and give biolat no right too many.

Takes the folder of the operator's CRDs and files of manifests; prints what is wrong, one complaint a line: the file, a tab,
the object and the complaint. Exits with 0 then, too: whether something has to be wrong is for the caller to know.
"""

import sys
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

# The oldest that the chart says it takes, and the newest whose schemas there are.
KUBERNETES = ["1.25", "1.37"]

# What a pod has unless someone takes it away, or has only if someone gives it, and biolat's has not.
SHARED_WITH_HOST = ["hostNetwork", "hostPID", "hostIPC"]


def main(crds, files):
    monitors = {crd["spec"]["names"]["kind"]: crd for crd in map(read, Path(crds).glob("*.yaml"))}
    for file in files:
        with open(file) as text:
            for manifest in filter(None, yaml.safe_load_all(text)):
                kind, name = manifest["kind"], manifest["metadata"]["name"]
                complaints = monitor(manifest, monitors[kind]) if kind in monitors else builtin(manifest)
                if kind == "DaemonSet":
                    complaints += rights(manifest["spec"]["template"]["spec"])
                if kind == "NetworkPolicy":
                    complaints += reach(manifest["spec"])
                for complaint in complaints:
                    print(f"{file}\t{kind} {name}: {complaint}")


def read(file):
    with open(file) as text:
        return yaml.safe_load(text)


def builtin(manifest):
    """By Kubernetes' own schemas, which know every field."""
    complaints = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = ".".join(map(str, error.path))
            complaints.append(f"Kubernetes {version} refuses {where}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            complaints.append(f"Kubernetes {version} has no {manifest['apiVersion']}")
    return complaints


def monitor(manifest, crd):
    """By the operator's own definition, made as strict as kubectl is about fields that nobody knows."""
    version = next(version for version in crd["spec"]["versions"] if version["storage"])
    schema = close(version["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = {"type": "object"}
    found = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return [f"the operator refuses {'.'.join(map(str, error.path))}: {error.message}" for error in found]


def close(schema):
    if isinstance(schema, list):
        return [close(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: close(value) for key, value in schema.items()}
    if schema.get("type") == "object" and "properties" in schema:
        closed.setdefault("additionalProperties", bool(schema.get("x-kubernetes-preserve-unknown-fields")))
    return closed


def rights(pod):
    """What docs/security.md and the README promise of the pod."""
    complaints = [f"{field} is set" for field in SHARED_WITH_HOST if pod.get(field)]
    if pod.get("automountServiceAccountToken") is not False:
        complaints.append("it is given a token")
    for volume in pod.get("volumes", []):
        kinds = volume.keys() - {"name", "projected"}
        kinds |= {kind for source in volume.get("projected", {}).get("sources", []) for kind in source} - {"secret"}
        complaints += [f"volume {volume['name']} is of {kind}" for kind in sorted(kinds)]
    of_pod = pod["securityContext"]
    if of_pod["seccompProfile"]["type"] == "Unconfined":
        complaints.append("it runs without a seccomp profile")
    if len(pod["containers"]) != 1 or pod.get("initContainers"):
        complaints.append("it has more than one container")
    for container in pod["containers"]:
        given = container["securityContext"]
        root = of_pod.get("runAsUser") == 0
        if not root and of_pod.get("runAsNonRoot") is not True:
            complaints.append("it may run as root unasked")
        if given.get("allowPrivilegeEscalation") not in ([False] if root else [False, True]):
            complaints.append("allowPrivilegeEscalation does not go with its user")
        if given.get("privileged") is not False:
            complaints.append("it is privileged")
        if given.get("readOnlyRootFilesystem") is not True:
            complaints.append("it may write to its root file system")
        capabilities = given.get("capabilities", {})
        if capabilities.get("drop") != ["ALL"] or sorted(capabilities.get("add", [])) != ["BPF", "PERFMON"]:
            complaints.append("its capabilities are not BPF and PERFMON alone")
        if set(container["resources"]) < {"requests", "limits"} or "memory" not in container["resources"]["limits"]:
            complaints.append("its memory has no limit")
    return complaints


def reach(policy):
    """It lets in what wants its one port, and nothing out."""
    ports = [port["port"] for rule in policy["ingress"] for port in rule.get("ports", [])]
    complaints = [] if ports == ["metrics"] else [f"it lets in to {ports}"]
    if policy.get("egress") or "Egress" not in policy["policyTypes"]:
        complaints.append("it lets something out")
    return complaints


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
