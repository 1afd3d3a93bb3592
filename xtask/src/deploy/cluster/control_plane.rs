//! Runs the cluster's programs on the node, as well as its clients, kubectl and helm.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use super::{
    busybox,
    config::{self, ADDRESS, NODE, SERVICES},
    node::Node,
    patience::eventually,
};
use crate::{
    host::tool,
    process::{find, quiet_output},
};

/// A running cluster. Dropping it stops everything.
pub(super) struct Cluster {
    programs: PathBuf,
    node: Node,
}

impl Cluster {
    /// Starts the cluster, with `images` in addition to its own.
    pub(super) fn start(programs: PathBuf, folder: &Path, images: &[&Path]) -> Result<Self> {
        let node = Node::new(folder)?;
        config::write(folder)?;
        let busybox = folder.join("busybox.tar");
        busybox::write(&busybox)?;
        let mut cluster = Self { programs, node };
        cluster.start_api_server()?;
        cluster.start_containerd(images.iter().copied().chain([&*busybox]))?;
        cluster.start_others()?;
        eventually(|| cluster.kubectl(&["wait", "--for=condition=Ready", &format!("node/{NODE}")]))
            .context("the node does not become ready")?;
        Ok(cluster)
    }

    fn start_api_server(&mut self) -> Result<()> {
        self.node.start(&find("etcd").context("no etcd")?, &["--data-dir=/var/lib/etcd"])?;
        let (certificate, key) = (self.file("certificate.pem"), self.file("key.pem"));
        self.start_program(
            "kube-apiserver",
            &[
                "--etcd-servers=http://127.0.0.1:2379",
                &format!("--advertise-address={ADDRESS}"),
                "--secure-port=443",
                &format!("--service-cluster-ip-range={SERVICES}"),
                "--allow-privileged=true",
                "--authorization-mode=RBAC",
                &format!("--admission-control-config-file={}", self.file("admission.json")),
                &format!("--client-ca-file={certificate}"),
                &format!("--tls-cert-file={certificate}"),
                &format!("--tls-private-key-file={key}"),
                &format!("--kubelet-client-certificate={certificate}"),
                &format!("--kubelet-client-key={key}"),
                "--kubelet-preferred-address-types=InternalIP",
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--service-account-key-file={key}"),
                &format!("--service-account-signing-key-file={key}"),
            ],
        )?;
        eventually(|| self.kubectl(&["get", "--raw=/readyz"]))
            .context("the API server does not become ready")?;
        Ok(())
    }

    fn start_containerd<'a>(&mut self, images: impl Iterator<Item = &'a Path>) -> Result<()> {
        let config = format!("--config={}", self.file("containerd.toml"));
        self.node.start(&find("containerd").context("no containerd")?, &[&config])?;
        eventually(|| self.containerd(&["version"])).context("containerd does not answer")?;
        for image in images {
            self.containerd(&["images", "import", &image.to_string_lossy()])?;
        }
        Ok(())
    }

    fn start_others(&mut self) -> Result<()> {
        let kubeconfig = format!("--kubeconfig={}", self.file("kubeconfig.json"));
        let keys = [
            format!("--service-account-private-key-file={}", self.file("key.pem")),
            format!("--root-ca-file={}", self.file("certificate.pem")),
        ];
        let manager =
            [&kubeconfig, "--leader-elect=false", "--use-service-account-credentials", &keys[0], &keys[1]];
        self.start_program("kube-controller-manager", &manager)?;
        self.start_program("kube-scheduler", &[&kubeconfig, "--leader-elect=false"])?;
        self.start_program("coredns", &["-conf", &self.file("Corefile")])?;
        let config = format!("--config={}", self.file("kubelet.json"));
        let names = [format!("--hostname-override={NODE}"), format!("--node-ip={ADDRESS}")];
        self.start_program("kubelet", &[&config, &kubeconfig, &names[0], &names[1]])
    }

    fn start_program(&mut self, name: &str, arguments: &[&str]) -> Result<()> {
        self.node.start(&self.programs.join(name), arguments)
    }

    /// Returns the path of a configuration file.
    pub(super) fn file(&self, name: &str) -> String {
        self.node.folder().join(name).to_string_lossy().into_owned()
    }

    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        quiet_output(&mut self.client(&self.programs.join("kubectl"), arguments))
    }

    /// Runs helm and returns its standard output and standard error: helm prints test logs to standard error.
    pub(super) fn helm(&self, arguments: &[&str]) -> Result<String> {
        let helm = tool("bin/helm");
        let both = ["-c", "exec \"$0\" \"$@\" 2>&1", &helm.to_string_lossy()];
        quiet_output(&mut self.client(Path::new("sh"), &[&both, arguments].concat()))
    }

    fn client(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.node.command(program, arguments);
        command.env("KUBECONFIG", self.file("kubeconfig.json"));
        command
    }

    /// Applies a manifest with kubectl.
    pub(super) fn apply(&self, manifest: &str) -> Result<()> {
        let file = self.write(manifest)?;
        self.kubectl(&["apply", "--filename", &file]).map(drop)
    }

    /// Writes a manifest to a file, overwriting the previous manifest, and returns the file's path.
    pub(super) fn write(&self, manifest: &str) -> Result<String> {
        let file = self.file("manifest.yaml");
        fs::write(&file, manifest).with_context(|| format!("cannot write {file}"))?;
        Ok(file)
    }

    /// Runs containerd's own client.
    fn containerd(&self, arguments: &[&str]) -> Result<String> {
        self.on_node(&[&["ctr", "--namespace", "k8s.io"], arguments].concat())
    }

    /// Runs a command on the node and returns its output.
    pub(super) fn on_node(&self, command: &[&str]) -> Result<String> {
        quiet_output(&mut self.node_command(command[0], &command[1..]))
    }

    /// Returns a command that runs on the node.
    pub(super) fn node_command(&self, program: &str, arguments: &[&str]) -> Command {
        self.node.command(program, arguments)
    }

    /// Returns a container's process ID on the node, given the container ID from the pod's status.
    pub(super) fn process(&self, container: &str) -> Result<String> {
        let id = container.trim_start_matches("containerd://");
        ensure!(!id.is_empty(), "the container has no ID yet");
        let tasks = self.containerd(&["tasks", "list"])?;
        let task =
            tasks.lines().find_map(|line| line.strip_prefix(id)).with_context(|| format!("no task {id}"))?;
        Ok(task.split_whitespace().next().context("the task has no process")?.to_owned())
    }
}
