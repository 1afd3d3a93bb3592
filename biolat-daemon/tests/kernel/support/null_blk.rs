//! null_blk devices with configurable properties and latency.

use std::{fs, path::PathBuf};

/// A device, removed on drop.
pub(crate) struct NullBlk {
    pub(crate) name: String,
    folder: PathBuf,
}

impl NullBlk {
    /// Creates a 256 MiB device with these configfs settings.
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        let root = PathBuf::from("/sys/kernel/config/nullb");
        let number = (0..).find(|number| !root.join(format!("nullb{number}")).exists()).unwrap();
        let name = format!("nullb{number}");
        let folder = root.join(&name);
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let device = Self { name, folder };
        for (setting, value) in [("size", "256")].iter().chain(settings).chain(&[("power", "1")]) {
            if (*setting, *value) == ("poll_queues", "0") && !Self::can_poll() {
                continue;
            }
            fs::write(device.folder.join(setting), value)
                .unwrap_or_else(|error| panic!("null_blk {setting} = {value}: {error}"));
        }
        // The device now exists, and its name contains its index.
        let index = fs::read_to_string(device.folder.join("index")).unwrap();
        assert_eq!(format!("nullb{}", index.trim()), device.name);
        device
    }

    /// Whether the driver has polling queues.
    pub(crate) fn can_poll() -> bool {
        PathBuf::from("/sys/module/null_blk/parameters/poll_queues").exists()
    }

    /// Creates a device that stores its data and supports discards.
    pub(crate) fn in_memory(settings: &[(&str, &str)]) -> Self {
        Self::new(&[&[("memory_backed", "1"), ("discard", "1")], settings].concat())
    }

    /// Creates a device that completes each request after this many nanoseconds.
    pub(crate) fn with_latency(ns: u64, settings: &[(&str, &str)]) -> Self {
        let ns = ns.to_string();
        Self::new(&[&[("irqmode", "2"), ("completion_nsec", ns.as_str())], settings].concat())
    }

    pub(crate) fn path(&self) -> PathBuf {
        super::block::path(&self.name)
    }
}

impl Drop for NullBlk {
    fn drop(&mut self) {
        let _ = fs::write(self.folder.join("power"), "0");
        let _ = fs::remove_dir(&self.folder);
    }
}
