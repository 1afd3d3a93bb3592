//! Cgroups whose I/O the kernel charges: in the version 1 blkio hierarchy, or in version 2 with the io controller.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use super::{Folder, run};

/// The hierarchy in which I/O is charged. If it was mounted for a test, it is unmounted on drop.
pub(crate) struct Hierarchy {
    pub(crate) root: PathBuf,
    mounted: Option<Folder>,
    pub(crate) version: u32,
}

impl Hierarchy {
    pub(crate) fn open() -> Self {
        let blkio = Path::new("/sys/fs/cgroup/blkio");
        if blkio.join("cgroup.procs").exists() {
            return Self { root: blkio.to_owned(), mounted: None, version: 1 };
        }
        let unified = Path::new("/sys/fs/cgroup");
        let (root, mounted) = match unified.join("cgroup.controllers").exists() {
            true => (unified.to_owned(), None),
            false => {
                let folder = Folder::new("cgroups", true);
                run("mount", &["-t", "cgroup2", "none", folder.0.to_str().unwrap()]);
                (folder.0.clone(), Some(folder))
            }
        };
        fs::write(root.join("cgroup.subtree_control"), "+io").unwrap();
        Self { root, mounted, version: 2 }
    }

    /// Creates a cgroup with this path; its parent must exist.
    pub(crate) fn create(&self, path: &str) -> Cgroup {
        let folder = self.root.join(path.trim_start_matches('/'));
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Cgroup { folder, path: path.to_owned() }
    }

    /// Enables I/O charging for a cgroup's children.
    pub(crate) fn delegate(&self, parent: &Cgroup) {
        if self.version == 2 {
            fs::write(parent.folder.join("cgroup.subtree_control"), "+io").unwrap();
        }
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        if let Some(folder) = &self.mounted {
            let _ = Command::new("umount").arg(&folder.0).output();
        }
    }
}

/// A cgroup, removed on drop.
pub(crate) struct Cgroup {
    folder: PathBuf,
    /// Path from the root of the hierarchy.
    pub(crate) path: String,
}

impl Cgroup {
    /// Starts a shell command in the cgroup.
    pub(crate) fn spawn(&self, command: &str) -> Child {
        let enter = format!("echo $$ > {}/cgroup.procs && {command}", self.folder.display());
        Command::new("sh").args(["-c", &enter]).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Limits reads and writes of the device with this number to this many per second each.
    pub(crate) fn limit(&self, device: &str, rate: u32) {
        fs::write(self.folder.join("io.max"), format!("{device} riops={rate} wiops={rate}")).unwrap();
    }

    /// Returns the time with some and with all tasks stalled on I/O.
    pub(crate) fn stalled(&self) -> [Duration; 2] {
        let text = fs::read_to_string(self.folder.join("io.pressure")).unwrap();
        let total = |line: &str| line.split_once("total=").unwrap().1.parse().unwrap();
        let [some, full] = text.lines().map(total).map(Duration::from_micros).collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        [some, full]
    }

    /// Renames it within its parent.
    pub(crate) fn rename(&mut self, path: &str) -> std::io::Result<()> {
        let folder = self.folder.with_file_name(path.rsplit('/').next().unwrap());
        fs::rename(&self.folder, &folder)?;
        (self.folder, self.path) = (folder, path.to_owned());
        Ok(())
    }

    /// Runs a shell command in the cgroup and asserts that it succeeds.
    pub(crate) fn run(&self, command: &str) {
        let output = self.spawn(command).wait_with_output().unwrap();
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just exited may still be in the cgroup.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() || !self.folder.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
