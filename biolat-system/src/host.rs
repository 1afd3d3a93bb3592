//! The host whose disks are measured: its name, where its sysfs and procfs are mounted, and facts about its kernel.

use std::{fs, io, path::PathBuf};

use clap::Args;

// The name of the host and the mount points of its pseudo file systems. Not a doc comment: clap would use it as the help text
// of the command that has these options.
#[derive(Args, Clone, Debug)]
pub struct Host {
    /// Name of this host in the API, in `biolat` and on the page [default: the kernel's host name]
    ///
    /// In a pod that is the name of the pod: give the node's.
    #[arg(long, value_name = "NAME", env = "BIOLAT_NODE_NAME", hide_env_values = true)]
    pub node_name: Option<String>,

    /// Mount point of sysfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_SYSFS", hide_env_values = true, default_value = "/sys")]
    pub sysfs: PathBuf,

    /// Mount point of procfs
    #[arg(long, value_name = "DIR", env = "BIOLAT_PROCFS", hide_env_values = true, default_value = "/proc")]
    pub procfs: PathBuf,

    /// Directory with the links that the kubelet makes to the logs of containers, for the names of pods
    ///
    /// Only the names of the links and of what they point to are read. Without the directory, pods are shown by their UIDs.
    #[arg(long, value_name = "DIR", env = "BIOLAT_CONTAINER_LOGS", hide_env_values = true)]
    #[arg(default_value = "/var/log/containers")]
    pub container_logs: PathBuf,
}

impl Default for Host {
    /// With the usual mount points.
    fn default() -> Self {
        Self {
            node_name: None,
            sysfs: "/sys".into(),
            procfs: "/proc".into(),
            container_logs: "/var/log/containers".into(),
        }
    }
}

impl Host {
    /// The name that is shown: `--node-name`, else the kernel's host name; empty if that cannot be read.
    pub fn name(&self) -> String {
        let given = self.node_name.clone().filter(|name| !name.is_empty());
        given.unwrap_or_else(|| self.kernel_setting("hostname").unwrap_or_default())
    }

    /// The kernel's release, `6.18.0`.
    pub fn kernel_release(&self) -> io::Result<String> {
        self.kernel_setting("osrelease")
    }

    /// The kernel's id of this boot.
    pub fn boot_id(&self) -> io::Result<String> {
        self.kernel_setting("random/boot_id")
    }

    /// The kernel's BTF.
    pub fn btf(&self) -> PathBuf {
        self.sysfs.join("kernel/btf/vmlinux")
    }

    /// The kernel's lockdown modes, the active one in brackets; empty if it cannot be read.
    pub fn lockdown(&self) -> String {
        fs::read_to_string(self.sysfs.join("kernel/security/lockdown")).unwrap_or_default()
    }

    fn kernel_setting(&self, name: &str) -> io::Result<String> {
        let text = fs::read_to_string(self.procfs.join("sys/kernel").join(name))?;
        Ok(text.trim().to_owned())
    }
}
