//! Finds the programs that guests run, with their libraries: this machine's or, for another architecture, Debian's.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::archive::Archive;
use crate::{
    folder::make_empty,
    host::tool,
    process::{find, output},
    static_build::Architecture,
};

/// Programs that guests need, with their Debian packages.
pub(crate) const PROGRAMS: [(&str, &str); 10] = [
    ("busybox", "busybox-static"),
    ("modprobe", "kmod"),
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("bpftool", "bpftool"),
    ("dmsetup", "dmsetup"),
    ("mdadm", "mdadm"),
    ("fio", "fio"),
];

/// Debian suite to get programs for other architectures from.
const SUITE: &str = "bookworm";

/// A file on this machine and its path in the guest, which has a merged `/usr`.
pub(super) struct Located {
    pub(super) file: PathBuf,
    pub(super) place: PathBuf,
}

/// The system from which guests get their programs.
pub(super) struct Programs {
    architecture: Architecture,
    /// Directory with the unpacked packages of another architecture.
    root: Option<PathBuf>,
}

impl Programs {
    /// Downloads the programs if they are for another architecture.
    pub(super) fn of(architecture: Architecture) -> Result<Self> {
        let root = if architecture.is_host() { None } else { Some(unpacked(architecture)?) };
        Ok(Self { architecture, root })
    }

    /// Returns all of [`PROGRAMS`].
    pub(super) fn all(&self) -> Result<Vec<Located>> {
        let found = PROGRAMS.into_iter().map(|(program, package)| {
            let path = match &self.root {
                None => find(program),
                Some(root) => ["/usr/bin", "/usr/sbin", "/bin", "/sbin"]
                    .map(|folder| Path::new(folder).join(program))
                    .into_iter()
                    .find(|path| fs::symlink_metadata(beneath(root, path)).is_ok()),
            };
            self.locate(&path.with_context(|| format!("no {program}: apt-get install {package}"))?)
        });
        found.collect()
    }

    /// Returns a program's shared libraries and its loader.
    pub(super) fn libraries(&self, program: &Path) -> Result<Vec<Located>> {
        let mut command = match &self.root {
            None => Command::new("ldd"),
            Some(root) => {
                let mut command = self.architecture.user_emulator();
                command.args(["-E", "LD_TRACE_LOADED_OBJECTS=1", "-L"]).arg(root);
                command
            }
        };
        // A statically linked program has no libraries: ldd fails, and the emulator runs the program, so neither lists any.
        let printed = command.arg(program).output()?;
        let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
        let with_address = printed.lines().filter(|line| line.contains(" (0x"));
        let libraries =
            with_address.filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
        libraries.map(|library| self.locate(Path::new(library))).collect()
    }

    fn locate(&self, path: &Path) -> Result<Located> {
        let place = match path.strip_prefix("/usr") {
            Ok(_) => path.to_path_buf(),
            Err(_) => beneath(Path::new("/usr"), path),
        };
        let Some(root) = &self.root else { return Ok(Located { file: path.to_path_buf(), place }) };
        // An absolute link is relative to the other system's root, not this one's.
        let mut path = path.to_path_buf();
        while let Ok(target) = fs::read_link(beneath(root, &path)) {
            path = path.parent().context("a link without a directory")?.join(target);
        }
        Ok(Located { file: beneath(root, &path), place })
    }
}

fn beneath(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the directory with the unpacked packages of another architecture, cached in `target/tools`.
fn unpacked(architecture: Architecture) -> Result<PathBuf> {
    let folder = tool(&format!("programs-{}", architecture.name));
    let (complete, partial) = (folder.join("root"), folder.join("partial"));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // A concurrent run may download them too.
    let lock = fs::File::create(folder.join("lock"))?;
    lock.lock().with_context(|| format!("cannot lock {}", folder.display()))?;
    let packages = PROGRAMS.map(|(_, package)| package);
    let (wanted, list) = (packages.join(" "), folder.join("packages"));
    if fs::read_to_string(&list).is_ok_and(|found| found == wanted) {
        return Ok(complete);
    }
    println!("downloading programs for {}", architecture.name);
    make_empty(&partial)?;
    Archive::update(&folder, SUITE, architecture)?.unpack_with_dependencies(&packages, &partial)?;
    output(Command::new("rm").arg("-rf").arg(&complete))?;
    fs::rename(partial, &complete)?;
    fs::write(list, wanted)?;
    Ok(complete)
}
