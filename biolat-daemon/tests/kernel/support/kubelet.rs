//! The kubelet's directory on a node, and a daemon that sees its mounts as the chart's pod does.

use std::{
    ffi::CString,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
    ptr::null,
    thread,
};

use caps::{
    Capability::{CAP_BPF, CAP_PERFMON},
    CapsHashSet,
};

use super::{Folder, daemon::Daemon, mount::Mount, run, unprivileged};

/// A directory like `/var/lib/kubelet`. As there, only root can enter it, and its mounts are shared.
pub(crate) struct Kubelet(Mount);

/// A volume of a pod, unmounted on drop.
pub(crate) struct Volume(PathBuf);

impl Kubelet {
    pub(crate) fn new() -> Self {
        let mount = Mount::new("kubelet", &["-t", "tmpfs", "-o", "mode=750", "tmpfs"]);
        change_propagation(mount.place(), libc::MS_SHARED);
        Self(mount)
    }

    /// Mounts a file system or, with `-o bind`, a directory for a pod.
    pub(crate) fn mount(&self, volume: &str, options: &[&str], source: &Path) -> Volume {
        let point = self.path(&format!("pods/01-23/volumes/kubernetes.io~csi/{volume}/mount"));
        fs::create_dir_all(&point).unwrap();
        Volume::mount(point, options, source)
    }

    /// Mounts a block device's node for a pod.
    pub(crate) fn mount_raw(&self, volume: &str, device: &Path) -> Volume {
        let folder = self.path(&format!("plugins/kubernetes.io/csi/volumeDevices/publish/{volume}"));
        fs::create_dir_all(&folder).unwrap();
        let point = folder.join("01-23");
        fs::write(&point, "").unwrap();
        Volume::mount(point, &["-o", "bind"], device)
    }

    /// Starts a daemon as the chart's user, in a mount namespace to which later mounts are propagated.
    pub(crate) fn daemon(&self, folder: &Folder, devices: &str) -> Daemon {
        let two = CapsHashSet::from([CAP_BPF, CAP_PERFMON]);
        let mut command = unprivileged::command(&unprivileged::copy(folder), two);
        command.args(["--device", devices]);
        let start = move || {
            // SAFETY: moves only this thread.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0, "{}", io::Error::last_os_error());
            change_propagation("/", libc::MS_REC | libc::MS_SLAVE);
            Daemon::start_command(&mut command)
        };
        thread::spawn(start).join().unwrap()
    }

    /// Asserts that the chart's user cannot read a file that root can.
    pub(crate) fn assert_unreadable(&self) {
        let secret = self.path("pods/01-23/volumes/kubernetes.io~secret/password/key");
        fs::create_dir_all(secret.parent().unwrap()).unwrap();
        fs::write(&secret, "confidential").unwrap();
        let mut cat = Command::new("cat");
        let output = unprivileged::change_user(cat.arg(&secret), CapsHashSet::new()).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty() && error.contains("Permission denied"), "{error}");
    }

    fn path(&self, below: &str) -> PathBuf {
        Path::new(self.0.place()).join(below)
    }
}

impl Volume {
    fn mount(point: PathBuf, options: &[&str], source: &Path) -> Self {
        run("mount", &[options, &[source.to_str().unwrap(), point.to_str().unwrap()]].concat());
        Self(point)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        run("umount", &[self.0.to_str().unwrap()]);
    }
}

fn change_propagation(point: &str, flags: libc::c_ulong) {
    let path = CString::new(point).unwrap();
    // SAFETY: the path is NUL-terminated, and these flags ignore the other pointers.
    let result = unsafe { libc::mount(null(), path.as_ptr(), null(), flags, null()) };
    assert_eq!(result, 0, "{point}: {}", io::Error::last_os_error());
}
