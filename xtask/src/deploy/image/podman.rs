//! The image by podman, as the README says to run it.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::process::{output, run};

const IMAGE: &str = concat!("biolat:", env!("CARGO_PKG_VERSION"));

/// Lower than the engine's own, which not every root may set.
const LIMITS: [&str; 2] = ["--ulimit=nofile=1024:1024", "--ulimit=nproc=512:512"];

/// The engine, with its images in a folder of the check's own.
pub(super) struct Podman {
    folder: PathBuf,
    profile: PathBuf,
}

/// Removed when it is dropped.
pub(super) struct PodmanContainer<'a> {
    engine: &'a Podman,
    id: String,
    port: u16,
}

impl Podman {
    pub(super) fn load(image: &Path, folder: &Path) -> Result<Self> {
        let engine = Self { folder: folder.join("engine"), profile: folder.join("seccomp.json") };
        fs::write(&engine.profile, profile()?)?;
        run(engine.command(&["load", "--quiet", "--input"]).arg(image))?;
        Ok(engine)
    }

    /// Starts a container.
    pub(super) fn run(&self) -> Result<PodmanContainer<'_>> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = self.command(&["run", "--detach", "--cap-add=BPF", "--cap-add=PERFMON"]);
        command.args(["--env", "BIOLAT_INTERVAL=200ms", "--publish", &format!("127.0.0.1:{port}:9976")]);
        command.args(LIMITS).arg("--security-opt").arg(format!("seccomp={}", self.profile.display()));
        let id = output(command.arg(IMAGE))?.trim().to_owned();
        Ok(PodmanContainer { engine: self, id, port })
    }

    /// Who forgets the capabilities is told, in one line.
    pub(super) fn without_rights(&self) -> Result<()> {
        let mut command = self.command(&["run", "--rm", "--network=none"]);
        let ended = command.args(LIMITS).arg(IMAGE).output().context("cannot run podman")?;
        super::refused(&ended, "CAP_BPF and CAP_PERFMON")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.folder.join("images")).arg("--runroot").arg(self.folder.join("run"));
        // Neither a file system nor a service manager that may not be there.
        command.args(["--storage-driver=vfs", "--cgroup-manager=cgroupfs", "--runtime=runc"]).args(arguments);
        command
    }
}

impl PodmanContainer<'_> {
    pub(super) fn scrape(&self) -> Result<String> {
        let address = format!("http://127.0.0.1:{}/metrics", self.port);
        let asked =
            Command::new("curl").args(["--silent", "--fail", "--max-time", "5", &address]).output()?;
        if !asked.status.success() {
            let logs = self.engine.command(&["logs", &self.id]).output()?;
            bail!("{address}: {}; it says: {}", asked.status, String::from_utf8_lossy(&logs.stderr));
        }
        Ok(String::from_utf8(asked.stdout)?)
    }
}

impl Drop for PodmanContainer<'_> {
    fn drop(&mut self) {
        let _ = self.engine.command(&["rm", "--force", "--time=5", &self.id]).output();
    }
}

/// The engine's own profile as it is since podman 5.2: who has `CAP_BPF` may call bpf(2).
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
