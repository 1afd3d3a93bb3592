//! The image by runc, with rights as engines give them on Kubernetes: bounding ones, maybe permitted ones, and no ambient
//! ones.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::{
    folder::make_empty,
    process::{output, run},
};

/// What a container may do.
pub(super) struct PrivilegeCase {
    pub(super) description: &'static str,
    user: u32,
    capabilities: &'static [&'static str],
    /// Those of them that are permitted to what starts the program, before it is the program.
    permitted: &'static [&'static str],
    no_new_privileges: bool,
    /// What it says if that is not enough.
    pub(super) expected_error: Option<&'static str>,
}

const BOTH: &[&str] = &["CAP_BPF", "CAP_PERFMON"];
const NOBODY: u32 = 65532;

pub(super) const PRIVILEGE_CASES: [PrivilegeCase; 7] = [
    PrivilegeCase {
        description: "as a user that the binary's own capabilities serve",
        user: NOBODY,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: false,
        expected_error: None,
    },
    PrivilegeCase {
        description: "so that the capabilities are the binary's alone",
        user: NOBODY,
        capabilities: BOTH,
        permitted: &[],
        no_new_privileges: false,
        expected_error: None,
    },
    PrivilegeCase {
        description: "as a user that gets no new privileges, but had them before it started",
        user: NOBODY,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: true,
        expected_error: None,
    },
    PrivilegeCase {
        description: "as a root that has two capabilities and gets no others",
        user: 0,
        capabilities: BOTH,
        permitted: BOTH,
        no_new_privileges: true,
        expected_error: None,
    },
    PrivilegeCase {
        description: "as a user that gets no new privileges and had none",
        user: NOBODY,
        capabilities: BOTH,
        permitted: &[],
        no_new_privileges: true,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
    PrivilegeCase {
        description: "as a user whose container has no capabilities",
        user: NOBODY,
        capabilities: &[],
        permitted: &[],
        no_new_privileges: false,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
    PrivilegeCase {
        description: "as a root without capabilities",
        user: 0,
        capabilities: &[],
        permitted: &[],
        no_new_privileges: true,
        expected_error: Some("CAP_BPF and CAP_PERFMON"),
    },
];

/// A container that runs. Ended when it is dropped.
pub(super) struct RuncContainer {
    folder: PathBuf,
    child: Option<Child>,
}

impl RuncContainer {
    pub(super) fn start(folder: &Path, system: &Path, rights: &PrivilegeCase) -> Result<Self> {
        let folder = folder.join("bundle");
        make_empty(&folder)?;
        run(Command::new("runc").arg("spec").arg("--bundle").arg(&folder))?;
        let path = folder.join("config.json");
        // The rest is runc's own: namespaces, mounts, paths that are masked or read-only.
        let mut config: Value = serde_json::from_slice(&fs::read(&path)?)?;
        config["root"] = json!({ "path": system, "readonly": true });
        let process = &mut config["process"];
        process["terminal"] = json!(false);
        process["user"] = json!({ "uid": rights.user, "gid": rights.user });
        process["args"] = json!(["/biolat-daemon", "--interval", "200ms"]);
        process["noNewPrivileges"] = json!(rights.no_new_privileges);
        process["rlimits"] = json!([]);
        process["capabilities"] = json!({
            "bounding": rights.capabilities, "permitted": rights.permitted, "effective": rights.permitted,
            "inheritable": [], "ambient": [],
        });
        fs::write(&path, serde_json::to_vec(&config)?)?;
        let mut bundle = Self { folder, child: None };
        let mut command = bundle.runc(&["run", "--bundle"]);
        command.arg(&bundle.folder).arg(NAME).stdin(Stdio::null()).stderr(Stdio::piped());
        bundle.child = Some(command.spawn().context("cannot run runc")?);
        Ok(bundle)
    }

    /// By the loopback device of its own network.
    pub(super) fn scrape(&self) -> Result<String> {
        let state = self.runc(&["state", NAME]).output()?;
        let state: Value = serde_json::from_slice(&state.stdout).context("the container has not started")?;
        let pid = state["pid"].to_string();
        let within = |program: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--target", &pid, "--net", "--"]).args(program);
            command
        };
        output(&mut within(&["ip", "link", "set", "lo", "up"]))?;
        let address = "http://127.0.0.1:9976/metrics";
        let asked = within(&["curl", "--silent", "--fail", "--max-time", "5", address]).output()?;
        if !asked.status.success() {
            bail!("the container does not answer: {}", asked.status);
        }
        Ok(String::from_utf8(asked.stdout)?)
    }

    /// How it ended, which it is to do by itself.
    pub(super) fn ended(mut self) -> Result<Output> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let mut child = self.child.take().context("no container")?;
        let began = Instant::now();
        while child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                self.child = Some(child);
                bail!("it runs, and should have been refused");
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

const NAME: &str = "biolat-check";

impl Drop for RuncContainer {
    fn drop(&mut self) {
        let _ = self.runc(&["delete", "--force", NAME]).output();
        if let Some(mut child) = self.child.take() {
            let _ = child.wait();
        }
    }
}
