//! The NVMe driver's own counts of what went wrong on a device, its controller or its paths. Newer kernels have them in sysfs, in
//! files that root can write to.

use std::{collections::BTreeMap, path::Path};

use biolat_model::{device::Device, name::Name};

use super::sysfs::attribute;
use crate::resettable::ResettableCounter;

/// An event that the driver counts.
#[derive(Clone, Copy)]
pub(crate) struct NvmeEvent {
    pub(crate) name: &'static str,
    /// Below the device's directory, where `device` is its controller.
    file: &'static str,
    /// Only a path of a multipath device can have it.
    needs_path: bool,
}

const EVENTS: [NvmeEvent; 7] = [
    NvmeEvent { name: "failover", file: "diag/multipath_failover_count", needs_path: true },
    NvmeEvent { name: "retry", file: "diag/command_retries_count", needs_path: false },
    NvmeEvent { name: "error", file: "diag/command_error_count", needs_path: false },
    NvmeEvent {
        name: "requeue_without_path",
        file: "diag/io_requeue_no_usable_path_count",
        needs_path: false,
    },
    NvmeEvent {
        name: "failure_without_path",
        file: "diag/io_fail_no_available_path_count",
        needs_path: false,
    },
    NvmeEvent { name: "reset", file: "device/diag/reset_count", needs_path: false },
    NvmeEvent { name: "reconnect", file: "device/diag/reconnect_count", needs_path: false },
];

/// The events of one device since it was first read.
#[derive(Clone, Debug, Default)]
pub(crate) struct NvmeEvents {
    /// By name. Events that the kernel does not count for this device are missing.
    counters: BTreeMap<&'static str, ResettableCounter>,
    is_read: bool,
}

impl NvmeEvents {
    /// Continues with the counters of the previous daemon.
    pub(crate) fn from_counters<'a>(kept: impl Iterator<Item = (&'a str, ResettableCounter)>) -> Self {
        let known = |(name, counter)| Some((EVENTS.iter().find(|event| event.name == name)?.name, counter));
        Self { counters: kept.filter_map(known).collect(), is_read: false }
    }

    pub(crate) fn counters(&self) -> impl Iterator<Item = (&'static str, ResettableCounter)> {
        self.counters.iter().map(|(&name, &counter)| (name, counter))
    }

    /// Returns the events to read: at first those that the device can have, then those that the kernel counts.
    pub(crate) fn to_read(&self, device: &Device) -> Vec<NvmeEvent> {
        let is_wanted = |event: &NvmeEvent| {
            if self.is_read {
                self.counters.contains_key(event.name)
            } else {
                device.name.starts_with("nvme") && (device.path_of.is_some() || !event.needs_path)
            }
        };
        EVENTS.into_iter().filter(is_wanted).collect()
    }

    /// Adds the growth since the last reading.
    pub(crate) fn update(&mut self, read: &[(&'static str, u64)]) {
        self.is_read = true;
        for &(name, now) in read {
            let counter = self.counters.entry(name).or_insert(ResettableCounter::starting_at(now));
            counter.update(now);
        }
    }

    pub(crate) fn view(&self) -> BTreeMap<Name, u64> {
        self.counters().map(|(name, counter)| (name.into(), counter.growth)).collect()
    }
}

/// Reads the counts of a device; those that cannot be read are missing.
pub(crate) fn read(sysfs: &Path, name: &str, events: &[NvmeEvent]) -> Vec<(&'static str, u64)> {
    let directory = sysfs.join("block").join(name);
    let count = |event: &NvmeEvent| {
        attribute(&directory.join(event.file), &mut [0; 64]).ok()?.trim().parse::<u64>().ok()
    };
    events.iter().filter_map(|event| Some((event.name, count(event)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use biolat_model::device::Device;
    use biolat_testing::Tree;

    use super::{NvmeEvents, read};

    fn device(name: &str, path_of: Option<&str>) -> Device {
        Device { name: name.into(), path_of: path_of.map(str::to_owned), ..Device::default() }
    }

    fn update(events: &mut NvmeEvents, tree: &Tree, device: &Device) -> BTreeMap<String, u64> {
        events.update(&read(&tree.0, &device.name, &events.to_read(device)));
        events.view().into_iter().map(|(name, count)| (name.into_owned(), count)).collect()
    }

    #[test]
    fn counts_growth_of_what_the_kernel_counts() {
        let (path, head) = (device("nvme0c1n1", Some("nvme0n1")), device("nvme0n1", None));
        let files = ["multipath_failover_count", "command_retries_count", "command_error_count"];
        let tree = Tree::new("nvme-events", &[]);
        for file in files {
            tree.write(&format!("block/nvme0c1n1/diag/{file}"), b"5\n");
        }
        tree.write("block/nvme0c1n1/device/diag/reconnect_count", b"0\n");
        tree.write("block/nvme0n1/diag/io_requeue_no_usable_path_count", b"0\n");
        let mut events = NvmeEvents::default();
        let counts = |counts: &[(&str, u64)]| -> BTreeMap<String, u64> {
            counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
        };
        let zeros = counts(&[("error", 0), ("failover", 0), ("reconnect", 0), ("retry", 0)]);
        assert_eq!(update(&mut events, &tree, &path), zeros);
        tree.write("block/nvme0c1n1/diag/multipath_failover_count", b"8\n");
        tree.write("block/nvme0c1n1/device/diag/reconnect_count", b"2\n");
        let grown = counts(&[("error", 0), ("failover", 3), ("reconnect", 2), ("retry", 0)]);
        assert_eq!(update(&mut events, &tree, &path), grown);
        // Somebody has written to the file.
        tree.write("block/nvme0c1n1/diag/multipath_failover_count", b"0\n");
        assert_eq!(update(&mut events, &tree, &path), grown);
        assert_eq!(events.to_read(&path).len(), 4);
        let mut next = NvmeEvents::from_counters(events.counters());
        tree.write("block/nvme0c1n1/diag/multipath_failover_count", b"1\n");
        assert_eq!(update(&mut next, &tree, &path)["failover"], 4);

        let mut events = NvmeEvents::default();
        assert_eq!(update(&mut events, &tree, &head), counts(&[("requeue_without_path", 0)]));
        assert_eq!(events.to_read(&head).len(), 1);
    }

    #[test]
    fn reads_nothing_again_where_the_kernel_counts_nothing() {
        let tree = Tree::new("nvme-uncounted", &[("nvme0n1/dev", "259:0\n")]);
        let mut events = NvmeEvents::default();
        let drive = device("nvme0n1", None);
        assert!(events.to_read(&drive).iter().all(|event| event.name != "failover"));
        assert!(update(&mut events, &tree, &drive).is_empty() && events.to_read(&drive).is_empty());
        assert!(NvmeEvents::default().to_read(&device("sda", Some("dm-0"))).is_empty());
    }
}
