//! Runs the image in runc, with capabilities set as container runtimes set them for Kubernetes: bounding, possibly permitted,
//! never ambient.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::container::Container;
use crate::{
    folder::make_empty,
    process::{output, run},
};

/// Time limit for a container to serve metrics and count requests, or to exit with an error.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Privileges of a container, and whether the daemon starts with them.
pub(super) struct PrivilegeCase {
    pub(super) description: &'static str,
    user: u32,
    capabilities: &'static [&'static str],
    /// Permitted and effective capabilities of the runtime before it executes the daemon.
    permitted: &'static [&'static str],
    no_new_privileges: bool,
    /// Part of the daemon's error message if the privileges are insufficient.
    pub(super) expected_error: Option<&'static str>,
}

/// Privileges of a container that keeps its probe.
pub(super) const KEEPING: PrivilegeCase = PrivilegeCase {
    description: "root, no new privileges, two capabilities, a directory in which the probe is kept",
    ..PRIVILEGE_CASES[3]
};

const BOTH: &[&str] = &["CAP_BPF", "CAP_PERFMON"];
const NOBODY: u32 = 65532;

pub(super) const PRIVILEGE_CASES: [PrivilegeCase; 7] = [
    PrivilegeCase {
        description: "non-root, file capabilities",
        user: NOBODY,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: false,
        expected_error: None,
    },
    PrivilegeCase {
        description: "non-root, file capabilities, no permitted capabilities before exec",
        user: NOBODY,
        capabilities: BOTH,
        permitted: &[],
        no_new_privileges: false,
        expected_error: None,
    },
    PrivilegeCase {
        description: "non-root, no new privileges, permitted capabilities before exec",
        user: NOBODY,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: true,
        expected_error: None,
    },
    PrivilegeCase {
        description: "root, no new privileges, two capabilities",
        user: 0,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: true,
        expected_error: None,
    },
    PrivilegeCase {
        description: "non-root, no new privileges, no permitted capabilities before exec: fails",
        user: NOBODY,
        capabilities: BOTH,
        permitted: &[],
        no_new_privileges: true,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
    PrivilegeCase {
        description: "non-root, no capabilities in the container: fails",
        user: NOBODY,
        capabilities: &[],
        permitted: &[],
        no_new_privileges: false,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
    PrivilegeCase {
        description: "root, no capabilities: fails",
        user: 0,
        capabilities: &[],
        permitted: &[],
        no_new_privileges: true,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
];

/// A running container, deleted on drop.
pub(super) struct RuncContainer {
    folder: PathBuf,
    child: Option<Child>,
}

impl RuncContainer {
    /// Starts a container. If `kept` is a directory in a BPF file system, the container keeps its probe there, with the mount
    /// that the container's README describes.
    pub(super) fn start(
        folder: &Path,
        system: &Path,
        case: &PrivilegeCase,
        kept: Option<&Path>,
    ) -> Result<Self> {
        let folder = folder.join("bundle");
        make_empty(&folder)?;
        run(Command::new("runc").arg("spec").arg("--bundle").arg(&folder))?;
        let path = folder.join("config.json");
        // Everything else is runc's default: namespaces, mounts, masked and read-only paths.
        let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
        config["root"] = json!({ "path": system, "readonly": true });
        let process = &mut config["process"];
        process["terminal"] = json!(false);
        process["user"] = json!({ "uid": case.user, "gid": case.user });
        process["args"] = json!(["/biolat-daemon", "--interval", "200ms", "--loop"]);
        process["noNewPrivileges"] = json!(case.no_new_privileges);
        process["rlimits"] = json!([]);
        process["capabilities"] = json!({
            "bounding": case.capabilities, "permitted": case.permitted, "effective": case.permitted,
            "inheritable": [], "ambient": [],
        });
        if let Some(kept) = kept {
            let mounts = config["mounts"].as_array_mut().context("runc's default has no mounts")?;
            mounts.push(
                json!({ "destination": KEPT, "type": "bind", "source": kept, "options": ["rbind", "rw"] }),
            );
            let arguments = config["process"]["args"].as_array_mut().context("no arguments")?;
            arguments.extend([json!("--pin"), json!(KEPT)]);
        }
        fs::write(&path, serde_json::to_vec(&config)?)?;
        let mut container = Self { folder, child: None };
        let mut command = container.runc(&["run", "--bundle"]);
        command.arg(&container.folder).arg(NAME).stdin(Stdio::null()).stderr(Stdio::piped());
        container.child = Some(command.spawn().context("cannot run runc")?);
        Ok(container)
    }

    /// Waits for the container to exit on its own.
    pub(super) fn wait(mut self) -> Result<Output> {
        let mut child = self.child.take().context("no container")?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > START_TIMEOUT {
                self.child = Some(child);
                bail!("the container is still running; it should have exited with an error");
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(child.wait_with_output()?)
    }

    fn runc(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(self.folder.with_file_name("runc")).args(arguments);
        command
    }
}

impl Container for RuncContainer {
    /// Scrapes the daemon over the loopback interface of the container's network namespace.
    fn scrape(&self) -> Result<String> {
        let pid = self.pid()?.to_string();
        let within = |program: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--target", &pid, "--net", "--"]).args(program);
            command
        };
        output(&mut within(&["ip", "link", "set", "lo", "up"]))?;
        let address = "http://127.0.0.1:9976/metrics";
        let response = within(&["curl", "--silent", "--fail", "--max-time", "5", address]).output()?;
        if !response.status.success() {
            bail!("the daemon does not answer: {}", response.status);
        }
        Ok(String::from_utf8(response.stdout)?)
    }

    fn pid(&self) -> Result<u32> {
        let state = self.runc(&["state", NAME]).output()?;
        let state: Value = serde_json::from_slice(&state.stdout).context("the container has not started")?;
        let pid = state["pid"].as_u64().context("the container has no process")?;
        Ok(pid.try_into()?)
    }
}

const NAME: &str = "biolat-check";
/// Mount point of the kept probe. It is not below `/sys`, where a runtime cannot create a mount point.
const KEPT: &str = "/kept-probe";

impl Drop for RuncContainer {
    fn drop(&mut self) {
        let _ = self.runc(&["delete", "--force", NAME]).output();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}
