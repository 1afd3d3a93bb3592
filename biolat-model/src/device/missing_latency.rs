//! Latencies that the kernel does not record for a device: why not, and how to enable them.

use std::path::Path;

use super::{Device, Throttling};
use crate::shell::quoted;

/// Latencies missing for a device, according to sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingLatency {
    /// I/O statistics are disabled, so the kernel takes no timestamps.
    All,
    /// Nothing makes the kernel record when requests are dispatched.
    QueueAndDevice,
}

/// Default latency targets of writeback throttling in microseconds, for rotational and non-rotational devices.
///
/// `wbt_default_latency_nsec()`: <https://github.com/torvalds/linux/blob/v6.12/block/blk-wbt.c>
const THROTTLING_DEFAULTS: (u32, u32) = (75_000, 2_000);

/// Why no command makes the kernel record when requests are dispatched, and the alternatives.
pub const WITHOUT_THROTTLING: &str = "this kernel is built without CONFIG_BLK_WBT; \
     io.cost of a cgroup, or the scheduler bfq or kyber, has the same effect";

impl Device {
    pub fn missing_latency(&self) -> Option<MissingLatency> {
        match (self.iostats, self.throttling) {
            // The probe takes the timestamps.
            _ if self.is_volume() => None,
            (false, _) => Some(MissingLatency::All),
            (true, Throttling::SetUp) => None,
            (true, _) => Some(MissingLatency::QueueAndDevice),
        }
    }

    /// Returns the command that makes the kernel record the missing latencies, if there is one.
    pub fn remedy(&self, sysfs: &Path) -> Option<String> {
        let (attribute, value) = match (self.missing_latency()?, self.throttling) {
            (MissingLatency::All, _) => ("iostats", 1),
            (MissingLatency::QueueAndDevice, Throttling::NotBuiltIn) => return None,
            (MissingLatency::QueueAndDevice, _) if self.rotational => ("wbt_lat_usec", THROTTLING_DEFAULTS.0),
            (MissingLatency::QueueAndDevice, _) => ("wbt_lat_usec", THROTTLING_DEFAULTS.1),
        };
        let path = sysfs.join("block").join(&self.name).join("queue").join(attribute);
        Some(format!("echo {value} > {}", quoted(&path.display().to_string())))
    }

    /// Describes the missing latencies and how to enable them, in one line; `None` if none is missing.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let name = &self.name;
        let missing = match self.missing_latency()? {
            MissingLatency::All => "no latency: I/O statistics are disabled (queue/iostats is 0)",
            MissingLatency::QueueAndDevice => {
                "queue and device latency may be missing (total latency is recorded): nothing makes the kernel \
                 record when requests are dispatched"
            }
        };
        Some(match self.remedy(Path::new("/sys")) {
            Some(command) => format!("device {name}: {missing}; enable with: {command}"),
            None => format!("device {name}: {missing}: {WITHOUT_THROTTLING}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use crate::device::{Device, Throttling};

    #[test]
    fn hint_names_missing_latency_and_remedy() {
        let device = Device { name: "sda".into(), iostats: true, ..Device::default() };
        let hint = |device: &Device| device.hint().unwrap_or_default();
        assert_eq!(Device { throttling: Throttling::SetUp, ..device.clone() }.hint(), None);
        let off = hint(&Device { iostats: false, ..device.clone() });
        assert!(off.ends_with("echo 1 > /sys/block/sda/queue/iostats"), "{off}");
        let undispatched = hint(&Device { throttling: Throttling::CanBeSetUp, ..device.clone() });
        assert!(undispatched.contains("queue and device latency"), "{undispatched}");
        assert!(undispatched.ends_with("echo 2000 > /sys/block/sda/queue/wbt_lat_usec"), "{undispatched}");
        let spinning = Device { rotational: true, throttling: Throttling::CanBeSetUp, ..device.clone() };
        assert!(hint(&spinning).contains("echo 75000 >"), "{}", hint(&spinning));
        assert!(hint(&device).contains("CONFIG_BLK_WBT"), "{}", hint(&device));
    }

    /// ATA over Ethernet puts a `!` in device names, and a disk created by a user can have any name.
    #[test]
    fn quotes_device_names_for_the_shell() {
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
