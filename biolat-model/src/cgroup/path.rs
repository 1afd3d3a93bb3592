//! Interprets the components of a cgroup path: units, pods, containers, machines. The innermost of each kind wins.

use super::{Identity, Kind, unit};
use crate::text::sanitize;

/// What a cgroup path reveals.
#[derive(Default)]
pub(super) struct Location {
    pub(super) identity: Identity,
    /// Whether the unit runs inside the pod, container or machine, as opposed to being its own scope or slice, or an enclosing
    /// one.
    pub(super) is_unit_inside: bool,
    /// The unit whose cgroup contains the container (Podman's `--cgroups=split`, which Quadlet uses). The path contains no other
    /// name for such a container.
    pub(super) split_unit: String,
}

/// QoS classes: the pods' directory with the cgroupfs driver, the part of the slice name with the systemd driver, and the class
/// name.
const CLASSES: [(&str, &str, &str); 3] = [
    ("kubepods", "", "guaranteed"),
    ("burstable", "burstable-", "burstable"),
    ("besteffort", "besteffort-", "besteffort"),
];

/// Parent cgroup of Podman's containers and pods when it runs without systemd.
const PODMAN_PARENT: &str = "libpod_parent";
const PODMAN_SPLIT: &str = "libpod-payload-";

/// Text before and after a machine's name: scopes of systemd-machined, services of systemd itself, libvirt without systemd.
const MACHINES: [(&str, &str); 5] = [
    ("machine-", ".scope"),
    ("systemd-nspawn@", ".service"),
    ("systemd-vmspawn@", ".service"),
    ("", ".libvirt-qemu"),
    ("", ".libvirt-lxc"),
];

/// Proxmox VE names the scopes of its virtual machines just by number.
const PROXMOX_PARENT: &str = "qemu.slice";

pub(super) fn locate(path: &str) -> Location {
    // A process can outlive its cgroup: <https://github.com/torvalds/linux/blob/v6.12/kernel/cgroup/cgroup.c>
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    let mut location = Location::default();
    if path == "/" {
        location.identity.kind = Kind::Root;
    }
    let mut parent = "";
    for component in path.split('/').filter(|component| !matches!(*component, "" | "." | "..")) {
        location.descend(parent, component);
        parent = component;
    }
    location
}

impl Location {
    fn descend(&mut self, parent: &str, component: &str) {
        if let Some((unit, kind)) = unit::parse(component) {
            self.is_unit_inside = matches!(self.identity.kind, Kind::Pod | Kind::Container | Kind::Machine);
            if !self.is_unit_inside {
                self.identity.kind = kind;
            }
            unit.clone_into(&mut self.identity.unit);
        }
        if let Some((uid, qos)) = pod(parent, component) {
            self.enter(Kind::Pod, "", "");
            self.identity.pod_uid = uid;
            qos.clone_into(&mut self.identity.qos);
        }
        if let Some(id) = container_id(parent, component) {
            self.enter(Kind::Container, id, "");
            if component.starts_with(PODMAN_SPLIT) {
                self.split_unit.clone_from(&self.identity.unit);
            }
        } else if let Some(name) = lxc_name(parent, component) {
            self.enter(Kind::Container, "", name);
        } else if let Some(name) = machine_name(parent, component) {
            self.enter(Kind::Machine, "", &name);
        }
    }

    fn enter(&mut self, kind: Kind, container_id: &str, container: &str) {
        self.identity.kind = kind;
        container_id.clone_into(&mut self.identity.container_id);
        container.clone_into(&mut self.identity.container);
        self.is_unit_inside = false;
        self.split_unit.clear();
    }
}

/// Returns the UID and QoS class if this is a pod's own cgroup. Podman's pods have no class.
fn pod(parent: &str, component: &str) -> Option<(String, &'static str)> {
    // If the kubelet uses systemd but containerd uses cgroupfs, containers are in directories named `<slice>:<prefix>:<id>`.
    let name = component.split(':').next()?;
    let Some(slice) = name.strip_suffix(".slice") else {
        if parent == PODMAN_PARENT && is_runtime_id(name) {
            return Some((name.to_owned(), ""));
        }
        let uid = pod_uid(name.strip_prefix("pod")?)?;
        let class = CLASSES.iter().find(|(directory, ..)| *directory == parent);
        return Some((uid, class.map_or("", |(.., qos)| qos)));
    };
    if let Some((_, id)) = slice.split_once("libpod_pod_") {
        return is_runtime_id(id).then(|| (id.to_owned(), ""));
    }
    // The kubelet's `--cgroup-root` may precede this prefix.
    let (_, name) = slice.split_once("kubepods-")?;
    let (class, uid) = name.split_once("pod")?;
    let (.., qos) = CLASSES.iter().find(|(_, part, _)| *part == class)?;
    Some((pod_uid(uid)?, qos))
}

/// Restores the dashes, which the systemd driver writes as underscores. The UID of a static pod is a hash without dashes.
fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-");
    is_hexadecimal(&uid.replace('-', ""), 32).then_some(uid)
}

/// Parses `<id>`, `<runtime>-<id>`, `<runtime>-<id>.scope` or `<slice>:<runtime>:<id>`.
fn container_id<'a>(parent: &str, component: &'a str) -> Option<&'a str> {
    let name = component.strip_suffix(".scope").unwrap_or(component);
    // ECS: `<task>/<task>-<number>`.
    let number = name.strip_prefix(parent).and_then(|number| number.strip_prefix('-'));
    if is_hexadecimal(parent, 32) && number.is_some_and(is_decimal) {
        return Some(name);
    }
    let (runtime, id) = name.rsplit_once(['-', ':']).unwrap_or((parent, name));
    let is_monitor = runtime.ends_with("conmon");
    let is_pod = runtime == PODMAN_PARENT;
    // BuildKit ids have 25 letters and digits.
    let is_build = matches!(runtime, "docker" | "buildkit")
        && id.len() == 25
        && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    (is_runtime_id(id) && !is_monitor && !is_pod || is_build).then_some(id)
}

/// Returns the name of an LXC or Incus container. Before LXC 4.0, and still in Proxmox VE, its cgroup is a directory below `lxc`.
fn lxc_name<'a>(parent: &str, component: &'a str) -> Option<&'a str> {
    let below = matches!(parent, "lxc" | "lxc.payload").then_some(component);
    component.strip_prefix("lxc.payload.").or(below).filter(|name| is_printable(name))
}

fn machine_name(parent: &str, component: &str) -> Option<String> {
    if parent == PROXMOX_PARENT {
        return component.strip_suffix(".scope").filter(|id| is_decimal(id)).map(str::to_owned);
    }
    let between = |(prefix, suffix): &(&str, &str)| component.strip_prefix(prefix)?.strip_suffix(suffix);
    let name = unit::unescape(MACHINES.iter().find_map(between)?);
    let name = without_libvirt_driver(&name);
    is_printable(name).then(|| name.to_owned())
}

/// libvirt registers a machine as `<driver>-<number>-<name>`.
fn without_libvirt_driver(registered: &str) -> &str {
    let mut parts = registered.splitn(3, '-');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("qemu" | "lxc" | "ch"), Some(number), Some(name)) if is_decimal(number) => name,
        _ => registered,
    }
}

/// Whether Docker, containerd, CRI-O or Podman could have generated this id.
pub(super) fn is_runtime_id(id: &str) -> bool {
    is_hexadecimal(id, 64)
}

fn is_hexadecimal(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_printable(name: &str) -> bool {
    !name.is_empty() && !name.contains(sanitize::is_replaced)
}
