//! Names of Kubernetes pods and containers, from the kubelet's links to their logs. Only the names of the links and of their
//! targets are read.

use std::{collections::HashMap, fs, io, path::Path};

/// Names by container id and by pod UID.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodNames {
    containers: HashMap<String, (PodName, String)>,
    pods: HashMap<String, PodName>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PodName {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl PodNames {
    /// Reads all links in a directory, which is `/var/log/containers` on a node. Their targets need not be accessible.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let mut names = Self::default();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if let Some(name) = entry.file_name().to_str() {
                names.add_link(name);
            }
            // The kubelet may have removed the link by now, or the entry may be a regular file.
            if let Ok(target) = fs::read_link(entry.path()) {
                names.add_target(&target);
            }
        }
        Ok(names)
    }

    /// Builds the names from link names alone, which do not contain the pods' UIDs.
    pub fn from_file_names(names: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.add_link(name.as_ref());
        }
        all
    }

    pub(super) fn container(&self, id: &str) -> Option<(&PodName, &str)> {
        self.containers.get(id).map(|(pod, container)| (pod, container.as_str()))
    }

    pub(super) fn pod(&self, uid: &str) -> Option<&PodName> {
        self.pods.get(uid)
    }

    /// Adds a link named `<pod>_<namespace>_<container>-<id>.log`. If that is too long for a file name, the kubelet truncates it,
    /// including the id:
    /// <https://github.com/kubernetes/kubernetes/blob/16913111deb1a4c4ff76f4ba7ffd9ebef397a303/pkg/kubelet/kuberuntime/legacy.go>
    fn add_link(&mut self, name: &str) {
        let Some((names, id)) = name.strip_suffix(".log").and_then(|name| name.rsplit_once('-')) else {
            return;
        };
        if let Some([pod, namespace, container]) = three(names).filter(|_| super::path::is_runtime_id(id)) {
            let pod = PodName { namespace: namespace.to_owned(), name: pod.to_owned() };
            self.containers.insert(id.to_owned(), (pod, container.to_owned()));
        }
    }

    /// Adds a target `<pod logs>/<namespace>_<pod>_<uid>/<container>/<restarts>.log`, wherever the kubelet's `podLogsDir` is.
    fn add_target(&mut self, target: &Path) {
        let directory = target.iter().rev().nth(2).and_then(|directory| directory.to_str());
        if let Some([namespace, pod, uid]) = directory.and_then(three) {
            let pod = PodName { namespace: namespace.to_owned(), name: pod.to_owned() };
            self.pods.insert(uid.to_owned(), pod);
        }
    }
}

/// Splits the text into three names at underscores. No name in Kubernetes contains one.
fn three(names: &str) -> Option<[&str; 3]> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    let is_valid = |name: &&str| !name.is_empty() && name.bytes().all(is_allowed);
    let three: [&str; 3] = names.split('_').collect::<Vec<_>>().try_into().ok()?;
    three.iter().all(is_valid).then_some(three)
}
