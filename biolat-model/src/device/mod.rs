//! Block devices as plain data: names, identity, and everything stacked on them.

mod group;
mod missing_latency;
mod selection;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::sanitize;

pub use group::Group;
pub use missing_latency::{MissingLatency, WITHOUT_THROTTLING};
pub use selection::{BadExpression, Selection};

/// A block device: a drive, which has requests, or a volume (most dm, md, zram), which has only bios.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Key by which the probe identifies the device: the `diskseq` or, on kernels without it, a number derived from the inode.
    pub id: u64,
    /// Kernel name: `nvme0n1`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// `major:minor`; empty for a hidden multipath path.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub number: String,
    /// `diskseq`: changes whenever a disk appears or its medium changes.
    pub sequence: Option<u64>,
    /// Inode of its directory in sysfs. A different disk with the same name has a different inode.
    pub inode: u64,
    /// Model as reported by the drive, trimmed; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub model: String,
    /// Serial number; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub serial: String,
    /// World Wide Identifier; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub wwid: String,
    /// Firmware revision; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub firmware: String,
    /// Transport: `pcie`, `tcp`, `rdma`, `fc`, `iscsi`, `sas`, `sata`, `usb`, `virtio`, `xen`, `mmc`, …; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub transport: String,
    /// I/O scheduler in use; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub scheduler: String,
    pub rotational: bool,
    /// NUMA node that it is attached to, if any.
    pub numa_node: Option<u32>,
    /// For a hidden path, the multipath device that it belongs to.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub path_of: Option<String>,
    /// Details if it is a path of an NVMe or dm multipath device.
    pub path: Option<MultipathPath>,
    /// Kernel names of the dm and md devices that are stacked directly on it or on its partitions.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub holders: Vec<String>,
    /// Everything stacked on it, at any depth, nearest first.
    pub stack: Arc<[Holder]>,
    /// Whether request-based dm sends it clones. The kernel accounts these differently: a cloned flush as a read, and a clone
    /// that could not be dispatched as completed.
    pub has_clones: bool,
    /// Whether the kernel accounts and timestamps its requests (`queue/iostats`).
    pub iostats: bool,
    /// Whether the kernel accounts passthrough commands that have timestamps. It does if it can be asked to timestamp them
    /// (`queue/iostats_passthrough`, Linux 6.13).
    pub accounts_passthrough: bool,
    /// State of writeback throttling, which makes the kernel record when a request is dispatched.
    pub throttling: Throttling,
    /// `None` for a drive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
}

/// Kind of a multipath device.
pub const MULTIPATH: &str = "mpath";

impl Device {
    /// The model of a drive, or what a volume is; empty if unknown.
    #[must_use]
    pub fn description(&self) -> String {
        self.volume.as_ref().map_or_else(|| self.model.clone(), |volume| volume.description(&self.name))
    }

    /// Whether it is a volume, not a drive.
    #[must_use]
    pub const fn is_volume(&self) -> bool {
        self.volume.is_some()
    }

    /// Whether it is an NVMe multipath device: its I/O is the sum over its paths.
    #[must_use]
    pub fn is_multipath_head(&self) -> bool {
        self.name.starts_with("nvme") && self.is_volume()
    }
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// `lvm`, `crypt`, `md`, `zram`, …: see [`Holder::kind`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub kind: String,
    /// Name of a dm device in `/dev/mapper`; otherwise the kernel name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub label: String,
    /// Kernel names of the devices directly below it.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub on: Vec<String>,
}

impl Volume {
    /// Describes the volume with this kernel name: `vg-data, lvm on nvme0n1`.
    fn description(&self, name: &str) -> String {
        let label = if self.label == name { String::new() } else { format!("{}, ", self.label) };
        let on = if self.on.is_empty() { String::new() } else { format!(" on {}", self.on.join(", ")) };
        format!("{label}{}{on}", self.kind)
    }
}

/// State of writeback throttling, according to `queue/wbt_lat_usec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttling {
    /// Initialized, whether enabled or not: the kernel records when requests are dispatched.
    SetUp,
    /// Not initialized; writing a latency initializes it.
    CanBeSetUp,
    /// Not built into the kernel.
    #[default]
    #[serde(other)]
    NotBuiltIn,
}

/// A device in its role as a path of a multipath device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathPath {
    /// Kernel name of the multipath device: `nvme0n1`, `dm-3`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub of: String,
    /// Transport, as in [`Device::transport`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub transport: String,
    /// Address in the format of the transport: a PCI address, `traddr=…,trsvcid=…`, or the host, channel, target and LUN of a
    /// SCSI device.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub address: String,
    /// `live` if this path can carry I/O; otherwise the kernel's name for its state, or `unknown`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub state: String,
}

/// A block device or mounted file system that is stacked on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Kernel name: `dm-0`; for a file system, the name of its device or partition.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// `lvm`, `crypt`, `mpath`, `md`, `bcache`, …; `mount` or [`PERSISTENT_VOLUME`](Self::PERSISTENT_VOLUME).
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub kind: String,
    /// Name of a dm device in `/dev/mapper`, mount point of a file system, or name of a persistent volume; otherwise the kernel
    /// name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// 1 if it is directly on the device or on one of its partitions, 2 if it is on a holder of depth 1, and so on.
    pub depth: u32,
}

impl Holder {
    /// Kind of a volume of Kubernetes that is mounted for a pod.
    pub const PERSISTENT_VOLUME: &str = "persistent_volume";
}
