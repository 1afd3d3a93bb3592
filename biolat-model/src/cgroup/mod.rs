//! Identifies a cgroup by its path alone, as a systemd unit, pod, container or virtual machine. Pod names come from the kubelet's
//! links to their logs. Nothing here reads cgroupfs or asks a container runtime.

mod path;
mod pod_names;
#[cfg(test)]
mod tests;
mod unit;

pub use pod_names::PodNames;

use path::Location;

use serde::{Deserialize, Serialize};

use crate::text::sanitize;

/// Identity of a workload. A field is empty if it does not apply or cannot be told from the path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    pub kind: Kind,
    /// The innermost systemd unit, as systemd spells it. Can be a container's own scope, or a unit inside the container.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub unit: String,
    /// UID of a Kubernetes pod as its API spells it (with dashes, except for a static pod), or the id of a Podman pod.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub pod_uid: String,
    /// QoS class of a Kubernetes pod: `guaranteed`, `burstable` or `besteffort`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub qos: String,
    /// Id of the innermost container as its runtime spells it: 64 hexadecimal digits, with few exceptions.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub container_id: String,
    /// Name of the innermost container or machine: from the path for LXC and systemd-machined, from [`PodNames`] for Kubernetes.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub container: String,
    /// Namespace of the pod, from [`PodNames`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub namespace: String,
    /// Name of the pod, from [`PodNames`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub pod: String,
}

/// What a cgroup belongs to: the innermost pod, container or machine, or else the innermost systemd unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The root cgroup: I/O of the kernel and of processes in the root, and everything that is charged to no other cgroup.
    Root,
    Service,
    /// Processes that systemd did not start: `init.scope`, desktop applications, container monitors.
    Scope,
    Slice,
    /// A login session.
    Session,
    /// Another type of systemd unit: socket, mount, swap.
    Unit,
    /// A pod outside its containers: its own cgroup, or container monitors.
    Pod,
    /// A container of Docker, containerd, CRI-O, Podman, LXC or another runtime, whether in a pod or not.
    Container,
    /// A virtual machine, or a container managed like one (systemd-nspawn, libvirt's LXC driver).
    Machine,
    /// None of the above.
    #[default]
    #[serde(other)]
    Other,
}

impl Kind {
    /// Returns the value of the label `kind`, in lower case.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Service => "service",
            Self::Scope => "scope",
            Self::Slice => "slice",
            Self::Session => "session",
            Self::Unit => "unit",
            Self::Pod => "pod",
            Self::Container => "container",
            Self::Machine => "machine",
            Self::Other => "other",
        }
    }
}

impl Identity {
    /// Identifies a cgroup by its path, spelled as in `/proc/PID/cgroup` or cAdvisor's `id`: `/` is the root.
    #[must_use]
    pub fn of_path(path: &str) -> Self {
        path::locate(path).identity
    }

    /// Adds the names of the pod, namespace and container if they are known.
    #[must_use]
    pub fn with_names(mut self, names: &PodNames) -> Self {
        if let Some((pod, container)) = names.container(&self.container_id) {
            (self.namespace, self.pod) = (pod.namespace.clone(), pod.name.clone());
            self.container = container.to_owned();
        } else if let Some(pod) = names.pod(&self.pod_uid) {
            // A pod's own cgroup, or its sandbox, which has no log.
            (self.namespace, self.pod) = (pod.namespace.clone(), pod.name.clone());
        }
        self
    }

    /// Returns a short human-readable name: `postgresql.service`, `shop/web-0/nginx`, the name of a container or machine or the first
    /// digits of its id, `root cgroup`, or else the path. A unit inside a container is appended: `web/nginx.service`.
    #[must_use]
    pub fn short_name(&self, path: &str) -> String {
        let location = path::locate(path);
        match self.kind {
            Kind::Root => "root cgroup".to_owned(),
            Kind::Other => sanitize::text(path),
            Kind::Pod | Kind::Container | Kind::Machine if location.is_unit_inside => {
                format!("{}/{}", self.workload_name(&location), self.unit)
            }
            Kind::Pod | Kind::Container | Kind::Machine => self.workload_name(&location),
            Kind::Service | Kind::Scope | Kind::Slice | Kind::Session | Kind::Unit => self.unit.clone(),
        }
    }

    fn workload_name(&self, location: &Location) -> String {
        let container = [self.container.as_str(), &location.split_unit, short_id(&self.container_id)];
        let container = container.into_iter().find(|name| !name.is_empty());
        match (self.pod.is_empty(), container) {
            (false, Some(container)) => format!("{}/{}/{container}", self.namespace, self.pod),
            (false, None) => format!("{}/{}", self.namespace, self.pod),
            (true, Some(container)) => container.to_owned(),
            (true, None) => format!("pod{}", short_id(&self.pod_uid)),
        }
    }
}

/// Shortens an id like container runtimes do. Pod UIDs and ids with a dash (ECS) would no longer be unique, so they stay whole.
fn short_id(id: &str) -> &str {
    if path::is_runtime_id(id) { id.get(..12).unwrap_or(id) } else { id }
}
