//! Provides the node: PID, mount and network namespaces for all programs of the cluster, with their own `/var/lib`, `/var/log`,
//! `/run` and BPF file system. Killing process 1 of the PID namespace terminates all of them.

use std::{
    ffi::OsStr,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};

use crate::{folder::make_empty, process::show};

const CGROUPS: &str = "/sys/fs/cgroup";

/// The node. Dropping it terminates everything that runs in it.
pub(super) struct Node {
    folder: PathBuf,
    /// The `unshare` process, whose only child is process 1 of the PID namespace.
    unshare: Child,
    processes: Vec<Child>,
}

impl Node {
    pub(super) fn new(folder: &Path) -> Result<Self> {
        remove_cgroups()?;
        make_empty(folder)?;
        for name in ["lib", "log", "logs"] {
            fs::create_dir(folder.join(name))?;
        }
        let script = folder.join("node.sh");
        fs::write(&script, include_str!("node.sh"))?;
        // Each process is killed when its parent dies, so nothing outlives xtask.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--fork", "--kill-child"]);
        command.args(["--pid", "--mount", "--mount-proc", "--net", "--", "sh"]).arg(script).arg(folder);
        let mut unshare = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let stdout = unshare.stdout.take().context("no standard output")?;
        let node = Self { folder: folder.into(), unshare, processes: Vec::new() };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(line == "ready\n", "cannot set up the node's namespaces: see above");
        Ok(node)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns a command that runs on the node.
    pub(super) fn command(&self, program: impl AsRef<OsStr>, arguments: &[&str]) -> Command {
        let namespaces = format!("/proc/{}/ns", self.unshare.id());
        let mut command = Command::new("nsenter");
        command.arg(format!("--pid={namespaces}/pid_for_children"));
        command.arg(format!("--mount={namespaces}/mnt")).arg(format!("--net={namespaces}/net"));
        // kubectl and helm keep their caches in HOME.
        command.arg("--").arg(program).args(arguments).env("HOME", &self.folder);
        command
    }

    /// Starts a program that runs until the node is dropped. Its output goes to `logs`.
    pub(super) fn start(&mut self, program: &Path, arguments: &[&str]) -> Result<()> {
        let name = program.file_name().unwrap_or_default();
        let log = fs::File::create(self.folder.join("logs").join(name).with_extension("log"))?;
        let mut command = self.command(program, arguments);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot run {}", show(&command)))?;
        self.processes.push(child);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.unshare.kill();
        let _ = self.unshare.wait();
        for process in &mut self.processes {
            let _ = process.wait();
        }
        if let Err(error) = remove_cgroups() {
            eprintln!("warning: {error:#}");
        }
    }
}

/// Removes the pods' cgroups, which the kubelet leaves behind. They are empty if no kubelet is running.
fn remove_cgroups() -> Result<()> {
    let began = Instant::now();
    loop {
        let left: Vec<_> = pod_cgroups()?.into_iter().filter(|cgroup| !remove(cgroup)).collect();
        let Some(cgroup) = left.first() else { return Ok(()) };
        ensure!(
            began.elapsed() < Duration::from_secs(10),
            "cannot remove the pods' cgroup: {}: it is in use; is this machine a node of another cluster?",
            cgroup.display()
        );
        thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the parent cgroup of all pods, or one per hierarchy with cgroup v1.
fn pod_cgroups() -> Result<Vec<PathBuf>> {
    let roots = fs::read_dir(CGROUPS).with_context(|| format!("cannot read {CGROUPS}"))?;
    let roots = roots.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let found = roots.into_iter().chain([CGROUPS.into()]).map(|root| root.join("kubepods"));
    Ok(found.filter(|cgroup| cgroup.is_dir()).collect())
}

/// Removes a cgroup and its descendants. The kernel removes the files in it.
fn remove(cgroup: &Path) -> bool {
    let children = fs::read_dir(cgroup).into_iter().flatten().flatten();
    for child in children.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&child.path());
    }
    fs::remove_dir(cgroup).is_ok()
}
