//! Determines which requirements of tests and checks this machine lacks, and how to install them. Also locates tools.

use std::{os::unix::fs::MetadataExt as _, path::Path, process::Command};

use crate::process::{self, find};

/// A requirement of a test or a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Root or passwordless sudo, to load the probe and attach loop devices.
    RootOrSudo,
    /// Root for xtask itself, which calls chroot, mounts and installs packages.
    Root,
    /// The kernel's BTF.
    Btf,
    /// The loop driver.
    Loop,
    /// cgroups, v1 or v2, with memory and process limits.
    Cgroups,
    /// A program and its Debian package.
    Program(&'static str, &'static str),
    /// A file or directory that `.ci/install` creates in `target/tools`.
    Tool(&'static str),
    /// A Python module and its package.
    PythonPackage(&'static str, &'static str),
    /// The toolchain that builds the eBPF objects.
    ProbeCompiler,
    /// `cargo-deb`, which builds the Debian package.
    CargoDeb,
    /// A temporary directory on a disk or partition, for tests that need a blk-mq device.
    TemporaryFilesOnDisk,
}

impl Requirement {
    /// Returns why it is missing and how to install it, or `None` if it is present.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::RootOrSudo if is_root() => None,
            Self::RootOrSudo if find("sudo").is_none() => {
                Some("neither root nor sudo: run as root, or apt-get install sudo".into())
            }
            Self::RootOrSudo => (!sudo_is_passwordless())
                .then(|| "not root, and sudo asks for a password: run as root, or run sudo --validate first".into()),
            Self::Root => (!is_root()).then(|| "not root: run as root".into()),
            Self::Btf => (!Path::new("/sys/kernel/btf/vmlinux").exists())
                .then(|| "no /sys/kernel/btf/vmlinux: boot a kernel with CONFIG_DEBUG_INFO_BTF".into()),
            Self::Loop => (!Path::new("/dev/loop-control").exists())
                .then(|| "no loop driver: modprobe loop, or boot a kernel with CONFIG_BLK_DEV_LOOP".into()),
            Self::Cgroups => (!has_cgroups()).then(|| {
                "no writable cgroups with memory and pids: mount /sys/fs/cgroup, or run outside a container".into()
            }),
            Self::Program(program, package) => {
                find(program).is_none().then(|| format!("no {program}: apt-get install {package}"))
            }
            Self::Tool(path) => {
                (!tool(path).exists()).then(|| format!("no target/tools/{path}: run .ci/install (Debian, as root)"))
            }
            Self::PythonPackage(module, package) => (!python_has(module)).then(|| {
                format!(
                    "no Python module {module}: python3 -m venv target/python && target/python/bin/pip install {package}"
                )
            }),
            Self::ProbeCompiler => crate::ebpf::missing(),
            Self::CargoDeb => crate::cargo_deb::missing(),
            Self::TemporaryFilesOnDisk => (!temp_dir_is_on_disk()).then(|| {
                format!(
                    "{} is not on a disk or partition: set TMPDIR to a directory on one",
                    std::env::temp_dir().display()
                )
            }),
        }
    }
}

/// Returns which of the given requirements are missing, with their fixes, or `None` if all are present.
pub(crate) fn missing<'a>(needs: impl IntoIterator<Item = &'a Requirement>) -> Option<String> {
    let missing: Vec<_> = needs.into_iter().filter_map(|need| need.missing()).collect();
    if missing.is_empty() { None } else { Some(missing.join("; ")) }
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .any(|line| line.strip_prefix("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")))
}

/// Returns the Python interpreter for tests: the one in `target/python`, otherwise the system's.
pub(crate) fn python() -> std::path::PathBuf {
    let own = process::root().join("target/python/bin/python3");
    if own.exists() { own } else { "python3".into() }
}

/// Returns the path of a tool in `target/tools`, where `.ci/install` puts it.
pub(crate) fn tool(path: &str) -> std::path::PathBuf {
    process::root().join("target/tools").join(path)
}

/// Returns cargo options that run the built program with sudo, or none if xtask runs as root.
pub(crate) fn runner() -> Vec<&'static str> {
    if is_root() {
        Vec::new()
    } else {
        vec!["--config", "target.'cfg(all())'.runner=['sudo', '--preserve-env']"]
    }
}

/// Returns a command that runs a program as root, with sudo if needed, in the workspace's root directory.
pub(crate) fn as_root(program: &Path) -> Command {
    if is_root() {
        return process::command(program, &[]);
    }
    let mut command = process::command("sudo", &["--preserve-env"]);
    command.arg(program);
    command
}

/// Tries sudo with the options of [`runner`].
fn sudo_is_passwordless() -> bool {
    let mut sudo = Command::new("sudo");
    let outcome = sudo.args(["--non-interactive", "--preserve-env", "true"]).output();
    outcome.is_ok_and(|output| output.status.success())
}

fn has_cgroups() -> bool {
    let root = Path::new("/sys/fs/cgroup");
    let enabled = std::fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    ["memory", "pids"].iter().all(|controller| {
        let is_enabled = enabled.split_whitespace().any(|name| name == *controller);
        is_enabled || root.join(controller).join("cgroup.procs").exists()
    })
}

fn temp_dir_is_on_disk() -> bool {
    let Ok(metadata) = std::fs::metadata(std::env::temp_dir()) else { return false };
    // glibc's encoding of dev_t, for major numbers below 4096 and minor numbers below 2^20.
    let (major, minor) =
        (metadata.dev() >> 8 & 0xfff, metadata.dev() & 0xff | metadata.dev() >> 12 & 0xfff00);
    let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    device.join("mq").is_dir() || device.join("partition").exists() && device.join("../mq").is_dir()
}

fn python_has(module: &str) -> bool {
    let import = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    import.is_ok_and(|output| output.status.success())
}
