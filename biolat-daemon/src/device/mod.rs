//! Block devices as sysfs and uevents show them: names, lifetimes, the kernel's books. Nothing else of the
//! daemon reads sysfs, and the root is always a parameter.

pub mod books;
pub mod selection;
pub mod sysfs;
pub mod uevent;

/// A block device that has requests of its own. Bio-based ones (most dm, md, zram, a multipath head) have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What the probe knows it by: the sequence number, or the `dev_t` on kernels that have none.
    pub id: u64,
    /// The kernel's name: `nvme0n1`.
    pub name: String,
    /// `major:minor`; empty for a hidden multipath path.
    pub number: String,
    /// The disk's sequence number, new each time that a disk appears or its medium changes.
    pub sequence: Option<u64>,
    /// Of its folder in sysfs: another disk under the same name has another.
    pub inode: u64,
    /// The drive's own words, trimmed; empty if it has none.
    pub model: String,
    /// Serial number; empty if it has none.
    pub serial: String,
    /// World-wide id; empty if it has none.
    pub wwid: String,
    /// Whether it spins.
    pub rotational: bool,
    /// The NUMA node it hangs on, if it is bound to one.
    pub numa_node: Option<u32>,
    /// For a hidden path of a multipath device, that device.
    pub path_of: Option<String>,
    /// What is stacked on it or on its partitions: dm and md devices, by kernel name.
    pub holders: Vec<String>,
    /// Whether request-based dm sits on it and sends it clones, which the kernel books otherwise than it books
    /// requests: a cloned flush as a read, and a clone that could not be issued as completed.
    pub has_clones: bool,
    /// Whether the kernel books and stamps its requests (`queue/iostats`).
    pub iostats: bool,
    /// Whether passthrough commands that have a stamp are booked too: they are where the kernel can be asked to
    /// stamp them (`queue/iostats_passthrough`, Linux 6.13).
    pub books_passthrough: bool,
    /// Whether the kernel stamps the hand-over to the driver, as far as sysfs tells: it does where writeback
    /// throttling is set up, on or off.
    pub stamps_hand_over: bool,
}
