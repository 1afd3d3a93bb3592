//! What this machine has of what tests need, and what to do about what it has not.

use std::{os::unix::fs::MetadataExt as _, path::Path, process::Command};

use crate::process::find;

/// Something that a test needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// Root, to load the probe and attach loop devices.
    RootOrSudo,
    /// Root from the start, as what is started changes root, mounts and installs.
    Root,
    /// The kernel's types.
    Btf,
    /// The loop driver.
    Loop,
    /// A program, and the Debian package that has it.
    Program(&'static str, &'static str),
    /// Something that `.ci/install` puts below `target/tools`.
    Tool(&'static str),
    /// A module of Python, and the package that has it.
    PythonPackage(&'static str, &'static str),
    /// A compiler for the kernel's side.
    ProbeCompiler,
    /// What makes the Debian package.
    CargoDeb,
    /// Temporary files on a disk that has requests of its own.
    TemporaryFilesOnDisk,
}

impl Requirement {
    /// Why it is not there and what to do; nothing if it is there.
    pub(crate) fn missing(self) -> Option<String> {
        match self {
            Self::RootOrSudo => (!is_root() && find("sudo").is_none())
                .then(|| "neither root nor sudo: run it as root, or apt-get install sudo".into()),
            Self::Root => (!is_root()).then(|| "not root: run it as root".into()),
            Self::Btf => (!Path::new("/sys/kernel/btf/vmlinux").exists())
                .then(|| "no /sys/kernel/btf/vmlinux: boot a kernel with CONFIG_DEBUG_INFO_BTF".into()),
            Self::Loop => (!Path::new("/dev/loop-control").exists())
                .then(|| "no loop driver: modprobe loop, or boot a kernel with CONFIG_BLK_DEV_LOOP".into()),
            Self::Program(program, package) => {
                find(program).is_none().then(|| format!("no {program}: apt-get install {package}"))
            }
            Self::Tool(path) => {
                (!tool(path).exists()).then(|| format!("no target/tools/{path}: .ci/install puts it there"))
            }
            Self::PythonPackage(module, package) => (!python_has(module)).then(|| {
                format!(
                    "no Python with {module}: python3 -m venv target/python && target/python/bin/pip install {package}"
                )
            }),
            Self::ProbeCompiler => crate::ebpf::missing(),
            Self::CargoDeb => crate::dist::missing(),
            Self::TemporaryFilesOnDisk => (!temporary_files_are_on_a_disk()).then(|| {
                format!(
                    "{} is not on a disk or partition: set TMPDIR to a folder that is",
                    std::env::temp_dir().display()
                )
            }),
        }
    }
}

/// What of these is not there, and what to do about it; nothing if all are there.
pub(crate) fn missing<'a>(needs: impl IntoIterator<Item = &'a Requirement>) -> Option<String> {
    let missing: Vec<_> = needs.into_iter().filter_map(|need| need.missing()).collect();
    if missing.is_empty() { None } else { Some(missing.join("; ")) }
}

/// Whether we are root.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .any(|line| line.strip_prefix("Uid:").is_some_and(|ids| ids.split_whitespace().nth(1) == Some("0")))
}

/// The Python that tests use: one of the project's own, or the system's.
pub(crate) fn python() -> std::path::PathBuf {
    let own = crate::process::root().join("target/python/bin/python3");
    if own.exists() { own } else { "python3".into() }
}

/// Where something is that `.ci/install` puts below `target/tools`.
pub(crate) fn tool(path: &str) -> std::path::PathBuf {
    crate::process::root().join("target/tools").join(path)
}

/// What makes cargo start a program as root: nothing where we are.
pub(crate) fn runner() -> Vec<&'static str> {
    if is_root() {
        Vec::new()
    } else {
        vec!["--config", "target.'cfg(all())'.runner=['sudo', '--preserve-env']"]
    }
}

fn temporary_files_are_on_a_disk() -> bool {
    let Ok(metadata) = std::fs::metadata(std::env::temp_dir()) else { return false };
    // The numbers as glibc packs them into a dev_t, for as large as they are in practice.
    let (major, minor) =
        (metadata.dev() >> 8 & 0xfff, metadata.dev() & 0xff | metadata.dev() >> 12 & 0xfff00);
    let device = Path::new("/sys/dev/block").join(format!("{major}:{minor}"));
    device.join("mq").is_dir() || device.join("partition").exists() && device.join("../mq").is_dir()
}

fn python_has(module: &str) -> bool {
    let import = Command::new(python()).args(["-c", &format!("import {module}")]).output();
    import.is_ok_and(|output| output.status.success())
}
