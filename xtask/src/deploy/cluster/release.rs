//! Installs and inspects a release of the chart in the cluster.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use super::{control_plane::Cluster, patience::eventually};
use crate::process::root;

/// Name of the release, its objects and, as in the README, its namespace.
pub(super) const NAME: &str = "biolat";
const CHART: &str = "deploy/kubernetes/biolat";
const NAMESPACE: &str = "deploy/kubernetes/namespace.yaml";
/// Objects that every namespace contains.
const INITIAL: [&str; 2] = ["configmap/kube-root-ca.crt", "serviceaccount/default"];

/// A release. Dropping it uninstalls it and deletes its namespace.
pub(super) struct Release<'a> {
    cluster: &'a Cluster,
    namespace: &'static str,
    /// Output of `helm install`.
    notes: String,
}

impl<'a> Release<'a> {
    /// Installs the chart as the README says, without waiting for its pod.
    pub(super) fn install(cluster: &'a Cluster, values: &[&str]) -> Result<Self> {
        cluster.kubectl(&["apply", "--filename", &root().join(NAMESPACE).to_string_lossy()])?;
        Self::install_in(cluster, NAME, values)
    }

    /// Installs the chart into a namespace with additional options.
    pub(super) fn install_in(
        cluster: &'a Cluster,
        namespace: &'static str,
        options: &[&str],
    ) -> Result<Self> {
        let mut release = Self { cluster, namespace, notes: String::new() };
        release.notes = release.helm("install", &[&[&*chart()], options].concat())?;
        Ok(release)
    }

    /// Upgrades the release with different values.
    pub(super) fn upgrade(&self, values: &[&str]) -> Result<()> {
        self.helm("upgrade", &[&[&*chart(), "--reuse-values"], values].concat()).map(drop)
    }

    pub(super) fn helm(&self, verb: &str, arguments: &[&str]) -> Result<String> {
        self.cluster.helm(&[&[verb, NAME, "--namespace", self.namespace], arguments].concat())
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.cluster.kubectl(&[&["--namespace", self.namespace], arguments].concat())
    }

    /// Waits until the pod is ready.
    pub(super) fn wait(&self) -> Result<()> {
        self.kubectl(&["rollout", "status", "daemonset/biolat", "--timeout=90s"]).map(drop)
    }

    /// Runs the command from the notes that contains `words`.
    pub(super) fn follow(&self, words: &str) -> Result<String> {
        let mut commands = self.notes.lines().filter_map(|line| line.trim().strip_prefix("kubectl "));
        let command = commands.find(|command| command.contains(words));
        let command = command.with_context(|| format!("no command with {words:?} in {}", self.notes))?;
        self.cluster.kubectl(&command.split_whitespace().collect::<Vec<_>>())
    }

    /// Returns the container's ID.
    pub(super) fn container(&self) -> Result<String> {
        self.pod(".status.containerStatuses[0].containerID")
    }

    /// Returns the daemon's process ID on the node.
    pub(super) fn process(&self) -> Result<String> {
        self.cluster.process(&self.container()?)
    }

    pub(super) fn metrics(&self) -> Result<String> {
        let address = format!("http://{}/metrics", self.address()?);
        self.cluster.on_node(&["curl", "--silent", "--show-error", "--fail", "--max-time", "5", &address])
    }

    /// Returns the pod's address and port.
    pub(super) fn address(&self) -> Result<String> {
        Ok(format!("{}:9976", self.pod(".status.podIP")?))
    }

    /// Returns a field of the pod.
    fn pod(&self, field: &str) -> Result<String> {
        let selector = "--selector=app.kubernetes.io/name=biolat";
        let found =
            self.kubectl(&["get", "pods", selector, &format!("--output=jsonpath={{.items[*]{field}}}")])?;
        ensure!(found.split_whitespace().count() == 1, "expected one pod with {field}, found {found:?}");
        Ok(found)
    }

    /// Returns the IDs of the BPF programs that the daemon holds.
    pub(super) fn programs(&self) -> Result<BTreeSet<String>> {
        let descriptors = format!("/proc/{}/fdinfo", self.process()?);
        let found =
            self.cluster.on_node(&["grep", "--recursive", "--no-filename", "^prog_id:", &descriptors])?;
        found.lines().map(|line| Ok(line.split('\t').nth(1).context("no ID")?.to_owned())).collect()
    }

    /// Uninstalls the release and waits until nothing is left of it in its namespace.
    pub(super) fn uninstall(&self) -> Result<()> {
        self.helm("uninstall", &[])?;
        eventually(|| {
            let kinds = "all,configmaps,secrets,serviceaccounts,networkpolicies,roles,rolebindings";
            let left = self.kubectl(&["get", kinds, "--output=name"])?;
            let left: Vec<_> = left.lines().filter(|object| !INITIAL.contains(object)).collect();
            ensure!(left.is_empty(), "helm uninstall leaves {}", left.join(", "));
            Ok(())
        })
    }
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        let _ = self.helm("uninstall", &["--ignore-not-found"]);
        let _ = self.cluster.kubectl(&["delete", "namespace", self.namespace]);
    }
}

/// Returns which of these BPF programs are still loaded.
pub(super) fn loaded(cluster: &Cluster, programs: &BTreeSet<String>) -> Vec<String> {
    let is_loaded = |id: &&String| cluster.on_node(&["bpftool", "prog", "show", "id", id]).is_ok();
    programs.iter().filter(is_loaded).cloned().collect()
}

/// Returns the absolute path of the chart, because helm runs in another working directory.
fn chart() -> String {
    root().join(CHART).to_string_lossy().into_owned()
}
