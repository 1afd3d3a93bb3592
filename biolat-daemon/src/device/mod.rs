//! Block devices as sysfs and uevents show them: names, lifetimes, the kernel's books. Nothing else of the
//! daemon reads sysfs, and the root is always a parameter.

pub mod books;
pub mod selection;
pub mod sysfs;
#[cfg(test)]
pub(crate) mod tree;
pub mod uevent;

use std::path::Path;

use crate::shell::quoted;

/// A block device that has requests of its own. Bio-based ones (most dm, md, zram, a multipath head) have none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// What the probe knows it by: the sequence number, or one made of its numbers on kernels that have none.
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
    /// Whether writeback throttling is set up: where it is, the kernel stamps the hand-over to the driver.
    pub throttling: Throttling,
}

/// What `queue/wbt_lat_usec` tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Throttling {
    /// Set up, on or off: the kernel stamps.
    SetUp,
    /// Not set up, but it can be.
    CanBeSetUp,
    /// The kernel is built without it.
    #[default]
    NotBuiltIn,
}

/// What is missing of a device's latencies, as far as sysfs tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// All of them: the kernel takes no statistics of it.
    Statistics,
    /// Those of the queue and the device: nothing makes the kernel stamp the hand-over to the driver.
    Stamp,
}

/// What writeback throttling is set to by default, in microseconds: for what spins, and for what does not.
///
/// `wbt_default_latency_nsec()`: <https://github.com/torvalds/linux/blob/v6.12/block/blk-wbt.c>
const THROTTLING_DEFAULTS: (u32, u32) = (75_000, 2_000);

impl Device {
    /// What is missing of this device's latencies.
    #[must_use]
    pub fn lack(&self) -> Option<Lack> {
        match (self.iostats, self.throttling) {
            (false, _) => Some(Lack::Statistics),
            (true, Throttling::SetUp) => None,
            (true, _) => Some(Lack::Stamp),
        }
    }

    /// The command that turns on what is missing, where one does.
    #[must_use]
    pub fn remedy(&self, sysfs: &Path) -> Option<String> {
        let (attribute, value) = match (self.lack()?, self.throttling) {
            (Lack::Statistics, _) => ("iostats", 1),
            (Lack::Stamp, Throttling::NotBuiltIn) => return None,
            (Lack::Stamp, _) if self.rotational => ("wbt_lat_usec", THROTTLING_DEFAULTS.0),
            (Lack::Stamp, _) => ("wbt_lat_usec", THROTTLING_DEFAULTS.1),
        };
        let path = sysfs.join("block").join(&self.name).join("queue").join(attribute);
        Some(format!("echo {value} > {}", quoted(&path.display().to_string())))
    }

    /// What is missing of this device's latencies, and the command that turns it on, in one line; nothing if nothing is.
    #[must_use]
    pub fn lacks(&self) -> Option<String> {
        let name = &self.name;
        let missing = match self.lack()? {
            Lack::Statistics => "no latency is to be had, as the kernel takes no statistics of it",
            Lack::Stamp => {
                "queue and device latency may be missing (the total is not), as nothing makes the kernel stamp the \
                 hand-over to the driver"
            }
        };
        Some(match self.remedy(Path::new("/sys")) {
            Some(command) => format!("device {name}: {missing}; turn it on with: {command}"),
            None => format!("device {name}: {missing}: {WITHOUT_THROTTLING}"),
        })
    }
}

/// Why no command makes the kernel stamp the hand-over, and what else does.
pub const WITHOUT_THROTTLING: &str =
    "this kernel is built without CONFIG_BLK_WBT; a cgroup's io.latency or io.cost does as well";

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::{Device, Throttling};

    #[test]
    fn what_is_missing_comes_with_what_to_do() {
        let device = Device { name: "sda".into(), iostats: true, ..Device::default() };
        let lacks = |device: &Device| device.lacks().unwrap_or_default();
        assert_eq!(Device { throttling: Throttling::SetUp, ..device.clone() }.lacks(), None);
        let off = lacks(&Device { iostats: false, ..device.clone() });
        assert!(off.ends_with("echo 1 > /sys/block/sda/queue/iostats"), "{off}");
        let unstamped = lacks(&Device { throttling: Throttling::CanBeSetUp, ..device.clone() });
        assert!(unstamped.contains("queue and device latency"), "{unstamped}");
        assert!(unstamped.ends_with("echo 2000 > /sys/block/sda/queue/wbt_lat_usec"), "{unstamped}");
        let spinning = Device { rotational: true, throttling: Throttling::CanBeSetUp, ..device.clone() };
        assert!(lacks(&spinning).contains("echo 75000 >"), "{}", lacks(&spinning));
        assert!(lacks(&device).contains("CONFIG_BLK_WBT"), "{}", lacks(&device));
    }

    /// ATA over Ethernet has a `!` in its names, and a disk that a user makes may be called anything.
    #[test]
    fn a_name_is_a_word_to_the_shell() {
        for name in ["etherd!e1.1", "a b;id", "it's"] {
            let device = Device { name: name.into(), ..Device::default() };
            let command = device.remedy(Path::new("/sys")).unwrap();
            let word = command.strip_prefix("echo 1 > ").unwrap();
            assert!(word.starts_with('\'') && word.ends_with('\''), "{command}");
            let output = Command::new("sh").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(output.stdout, format!("/sys/block/{name}/queue/iostats").as_bytes());
        }
    }
}
