//! Block devices as plain data: names, identity, what sits on them.

mod group;
mod missing_latency;
mod selection;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::sanitize;

pub use group::Group;
pub use missing_latency::{MissingLatency, WITHOUT_THROTTLING};
pub use selection::{BadExpression, Selection};

/// A request-based block device. Bio-based ones (most dm, md, zram, a multipath head) have no requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// What the probe identifies it by: the sequence number or, on kernels without one, a number derived from the inode.
    pub id: u64,
    /// The kernel's name: `nvme0n1`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// `major:minor`; empty for a hidden multipath path.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub number: String,
    /// `diskseq`, new each time that a disk appears or its medium changes.
    pub sequence: Option<u64>,
    /// Of its directory in sysfs: another disk under the same name has another.
    pub inode: u64,
    /// As the drive reports it, trimmed; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub model: String,
    /// Serial number; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub serial: String,
    /// World-wide id; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub wwid: String,
    /// The revision of its firmware; empty if it reports none.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub firmware: String,
    /// How it is attached: `pcie`, `tcp`, `rdma`, `fc`, `iscsi`, `sas`, `sata`, `usb`, `virtio`, `xen`, `mmc`, …; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub transport: String,
    /// The I/O scheduler in use; empty if unknown.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub scheduler: String,
    pub rotational: bool,
    /// The NUMA node that it is attached to, if any.
    pub numa_node: Option<u32>,
    /// For a hidden path of a multipath device, that device.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub path_of: Option<String>,
    /// As a path of a multipath device, NVMe's or dm's, if it is one.
    pub path: Option<MultipathPath>,
    /// Devices stacked directly on it or on its partitions: dm and md devices, by kernel name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub holders: Vec<String>,
    /// What sits on it at any depth, the nearest first.
    pub stack: Arc<[Holder]>,
    /// Whether request-based dm sends it clones, which the kernel accounts differently from requests: a cloned flush as a
    /// read, and a clone that could not be dispatched as completed.
    pub has_clones: bool,
    /// Whether the kernel accounts and timestamps its requests (`queue/iostats`).
    pub iostats: bool,
    /// Whether the kernel accounts passthrough commands that have a timestamp: it does where it can be asked to timestamp
    /// them (`queue/iostats_passthrough`, Linux 6.13).
    pub accounts_passthrough: bool,
    /// Writeback throttling makes the kernel record when a request is dispatched.
    pub throttling: Throttling,
}

/// State of writeback throttling, by `queue/wbt_lat_usec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttling {
    /// Initialized, whether it throttles or is off: the kernel records when requests are dispatched.
    SetUp,
    /// Not initialized; setting a latency initializes it.
    CanBeSetUp,
    /// The kernel is built without it.
    #[default]
    #[serde(other)]
    NotBuiltIn,
}

/// A device as a path of a multipath device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultipathPath {
    /// The kernel's name of the multipath device: `nvme0n1`, `dm-3`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub of: String,
    /// As of the device: see [`Device::transport`].
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub transport: String,
    /// As the transport gives it: a PCI address, `traddr=…,trsvcid=…`; of a SCSI device host, channel, target and LUN.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub address: String,
    /// `live` if I/O can take this path; else the kernel's word for its state, or `unknown`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub state: String,
}

/// A block device, or a mounted file system, that sits on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The kernel's name: `dm-0`; for a file system, its device's or partition's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub device: String,
    /// `lvm`, `crypt`, `mpath`, `md`, `bcache`, …; `mount` or `persistent_volume`.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub kind: String,
    /// Of a dm device the name that it has in `/dev/mapper`, of a file system where it is mounted or the name of the persistent
    /// volume; else the kernel's name.
    #[serde(deserialize_with = "sanitize::deserialize")]
    pub name: String,
    /// 1 if it sits on the device itself or on one of its partitions, 2 if on a holder of depth 1, and so on.
    pub depth: u32,
}
