//! Runs the image in podman with the README's options.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::container::Container;
use crate::process::{output, run};

const IMAGE: &str = concat!("biolat:", env!("CARGO_PKG_VERSION"));

/// Lower limits than podman's defaults, which root in a container may not be allowed to set.
const LIMITS: [&str; 2] = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512"];

/// podman, with its storage in the check's directory.
pub(super) struct Podman {
    folder: PathBuf,
    profile: PathBuf,
}

/// A running container, removed on drop.
pub(super) struct PodmanContainer<'a> {
    podman: &'a Podman,
    id: String,
    port: u16,
}

impl Podman {
    pub(super) fn load(image: &Path, folder: &Path) -> Result<Self> {
        let podman = Self { folder: folder.join("engine"), profile: folder.join("seccomp.json") };
        fs::write(&podman.profile, profile()?)?;
        run(podman.command(&["load", "--quiet", "--input"]).arg(image))?;
        Ok(podman)
    }

    /// Starts a container.
    pub(super) fn run(&self) -> Result<PodmanContainer<'_>> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = self.command(&["run", "--detach", "--cap-add=BPF", "--cap-add=PERFMON"]);
        command.args([
            "--env",
            "BIOLAT_INTERVAL=200ms",
            "--env",
            "BIOLAT_LOOP=1",
            "--publish",
            &format!("127.0.0.1:{port}:9976"),
        ]);
        command.args(LIMITS).arg("--security-opt").arg(format!("seccomp={}", self.profile.display()));
        let id = output(command.arg(IMAGE))?.trim().to_owned();
        Ok(PodmanContainer { podman: self, id, port })
    }

    /// Runs a container without the daemon's capabilities until it ends.
    pub(super) fn run_without_capabilities(&self) -> Result<Output> {
        let mut command = self.command(&["run", "--rm", "--network=none"]);
        command.args(LIMITS).arg(IMAGE).output().context("cannot run podman")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.folder.join("images")).arg("--runroot").arg(self.folder.join("run"));
        // With these options, podman needs neither overlayfs nor systemd.
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--runtime=runc"]).args(arguments);
        command
    }
}

impl Container for PodmanContainer<'_> {
    fn scrape(&self) -> Result<String> {
        let address = format!("http://127.0.0.1:{}/metrics", self.port);
        let response =
            Command::new("curl").args(["--silent", "--fail", "--max-time", "5", &address]).output()?;
        if !response.status.success() {
            let logs = self.podman.command(&["logs", &self.id]).output()?;
            bail!(
                "{address}: {}; the container's log: {}",
                response.status,
                String::from_utf8_lossy(&logs.stderr)
            );
        }
        Ok(String::from_utf8(response.stdout)?)
    }

    fn pid(&self) -> Result<u32> {
        let pid = output(self.podman.command(&["inspect", "--format={{.State.Pid}}"]).arg(&self.id))?;
        Ok(pid.trim().parse()?)
    }
}

impl Drop for PodmanContainer<'_> {
    fn drop(&mut self) {
        let _ = self.podman.command(&["rm", "--force", "--time=5", &self.id]).output();
    }
}

/// Returns podman's default seccomp profile plus a rule that it has included since 5.2: `CAP_BPF` allows bpf(2).
fn profile() -> Result<Vec<u8>> {
    const OWN: &str = "/usr/share/containers/seccomp.json";
    let own = fs::read(OWN)
        .with_context(|| format!("cannot read {OWN}: apt-get install golang-github-containers-common"))?;
    let mut profile: Value = serde_json::from_slice(&own)?;
    let rules = profile["syscalls"].as_array_mut().with_context(|| format!("{OWN} has no rules"))?;
    for names in rules.iter_mut().filter_map(|rule| rule["names"].as_array_mut()) {
        names.retain(|name| name != "bpf");
    }
    rules.push(json!({ "names": ["bpf"], "action": "SCMP_ACT_ALLOW", "includes": { "caps": ["CAP_BPF"] } }));
    Ok(serde_json::to_vec(&profile)?)
}
