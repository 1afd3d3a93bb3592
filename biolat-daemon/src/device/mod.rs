//! Block devices as sysfs and uevents show them: names, lifetimes, disk statistics, what sits on them. No other module reads
//! `/sys/block`; the mount points of sysfs and procfs are always parameters.

pub mod diskstats;
mod missing_latency;
mod mounts;
pub(crate) mod paths;
mod scan;
pub mod selection;
mod stack;
pub(crate) mod sysfs;
mod transport;
#[cfg(test)]
pub(crate) mod tree;
pub(crate) mod uevent;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use missing_latency::{MissingLatency, WITHOUT_THROTTLING};
pub use paths::MultipathPath;
pub use scan::{IdKind, scan};
pub use stack::Holder;
pub(crate) use stack::read_stacks;

/// A request-based block device. Bio-based ones (most dm, md, zram, a multipath head) have no requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// What the probe identifies it by: the sequence number or, on kernels without one, a number derived from the inode.
    pub id: u64,
    /// The kernel's name: `nvme0n1`.
    pub name: String,
    /// `major:minor`; empty for a hidden multipath path.
    pub number: String,
    /// `diskseq`, new each time that a disk appears or its medium changes.
    pub sequence: Option<u64>,
    /// Of its directory in sysfs: another disk under the same name has another.
    pub inode: u64,
    /// As the drive reports it, trimmed; empty if it reports none.
    pub model: String,
    /// Serial number; empty if it reports none.
    pub serial: String,
    /// World-wide id; empty if it reports none.
    pub wwid: String,
    /// The revision of its firmware; empty if it reports none.
    pub firmware: String,
    /// How it is attached: `pcie`, `tcp`, `rdma`, `fc`, `iscsi`, `sas`, `sata`, `usb`, `virtio`, `xen`, `mmc`, …; empty if unknown.
    pub transport: String,
    /// The I/O scheduler in use; empty if unknown.
    pub scheduler: String,
    pub rotational: bool,
    /// The NUMA node that it is attached to, if any.
    pub numa_node: Option<u32>,
    /// For a hidden path of a multipath device, that device.
    pub path_of: Option<String>,
    /// As a path of a multipath device, NVMe's or dm's, if it is one.
    pub path: Option<MultipathPath>,
    /// Devices stacked directly on it or on its partitions: dm and md devices, by kernel name.
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
pub enum Throttling {
    /// Initialized, whether it throttles or is off: the kernel records when requests are dispatched.
    SetUp,
    /// Not initialized; setting a latency initializes it.
    CanBeSetUp,
    /// The kernel is built without it.
    #[default]
    NotBuiltIn,
}
