//! The host whose disks are measured: its name, the mount points of its sysfs and procfs, and facts about its kernel.

use std::{fs, io, path::PathBuf};

use clap::Args;

// Name of the host, and mount points of its pseudo file systems. This is not a doc comment, because clap would use it as the help
// text of any command with these options.
#[derive(Args, Clone, Debug)]
pub struct Host {
    /// Name of this host in the API, in `biolat` and on the page [default: the kernel's host name]
    ///
    /// In a pod, the kernel's host name is the pod's name, so set this to the node's name.
    #[arg(long, value_name = "NAME", env = "BIOLAT_NODE_NAME", hide_env_values = true)]
    pub node_name: Option<String>,

    /// Mount point of sysfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_SYSFS", hide_env_values = true, default_value = "/sys")]
    pub sysfs: PathBuf,

    /// Mount point of procfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_PROCFS", hide_env_values = true, default_value = "/proc")]
    pub procfs: PathBuf,

    /// Mount point of cgroup v2, for the time that workloads are stalled on I/O [default: fs/cgroup in sysfs]
    ///
    /// A container needs the host's, because its own has only the container's cgroups. Without cgroup v2, this time is not known.
    #[arg(long, value_name = "DIR", env = "BIOLAT_CGROUPFS", hide_env_values = true)]
    pub cgroupfs: Option<PathBuf>,

    /// Directory with the kubelet's links to container logs, for pod names
    ///
    /// Only the names of the links and of their targets are read. Without the directory, pods are shown by UID.
    #[arg(long, value_name = "DIR", env = "BIOLAT_CONTAINER_LOGS", hide_env_values = true)]
    #[arg(default_value = "/var/log/containers")]
    pub container_logs: PathBuf,
}

impl Default for Host {
    /// The usual mount points.
    fn default() -> Self {
        Self {
            node_name: None,
            sysfs: "/sys".into(),
            procfs: "/proc".into(),
            cgroupfs: None,
            container_logs: "/var/log/containers".into(),
        }
    }
}

impl Host {
    /// Returns the name to show: `--node-name`, or else the kernel's host name; empty if that cannot be read.
    pub fn name(&self) -> String {
        let given = self.node_name.clone().filter(|name| !name.is_empty());
        given.unwrap_or_else(|| self.kernel_setting("hostname").unwrap_or_default())
    }

    /// Returns the mount point of the cgroups.
    pub fn cgroups(&self) -> PathBuf {
        self.cgroupfs.clone().unwrap_or_else(|| self.sysfs.join("fs/cgroup"))
    }

    /// Returns the kernel release: `6.18.0`.
    pub fn kernel_release(&self) -> io::Result<String> {
        self.kernel_setting("osrelease")
    }

    /// Returns the kernel's id of this boot.
    pub fn boot_id(&self) -> io::Result<String> {
        self.kernel_setting("random/boot_id")
    }

    /// Returns the number of the last capability that the kernel knows.
    pub fn last_capability(&self) -> io::Result<u32> {
        self.kernel_setting("cap_last_cap")?.parse().map_err(|_| io::ErrorKind::InvalidData.into())
    }

    /// Returns the path of the kernel's BTF.
    pub fn btf(&self) -> PathBuf {
        self.sysfs.join("kernel/btf/vmlinux")
    }

    /// Returns the kernel's lockdown modes, with the active one in brackets; empty if they cannot be read.
    pub fn lockdown(&self) -> String {
        fs::read_to_string(self.sysfs.join("kernel/security/lockdown")).unwrap_or_default()
    }

    fn kernel_setting(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.procfs.join("sys/kernel").join(name))?;
        Ok(text.trim().to_owned())
    }
}
