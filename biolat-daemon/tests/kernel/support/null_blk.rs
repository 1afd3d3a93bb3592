//! Devices of the null block driver, made to measure: it has no drive behind it, and takes as long as it is told.

use std::{fs, path::PathBuf};

/// One device; gone when it is dropped.
pub(crate) struct NullBlk {
    pub(crate) name: String,
    folder: PathBuf,
}

impl NullBlk {
    /// A device of 256 MiB with these settings of configfs.
    pub(crate) fn new(settings: &[(&str, &str)]) -> Self {
        let root = PathBuf::from("/sys/kernel/config/nullb");
        let number = (0..).find(|number| !root.join(format!("nullb{number}")).exists()).unwrap();
        let name = format!("nullb{number}");
        let folder = root.join(&name);
        fs::create_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let device = Self { name, folder };
        for (setting, value) in [("size", "256")].iter().chain(settings).chain(&[("power", "1")]) {
            fs::write(device.folder.join(setting), value)
                .unwrap_or_else(|error| panic!("null_blk {setting} = {value}: {error}"));
        }
        // It is there at once, under a name that its number makes.
        let index = fs::read_to_string(device.folder.join("index")).unwrap();
        assert_eq!(format!("nullb{}", index.trim()), device.name);
        device
    }

    /// One that keeps what is written to it, and can do all that the driver can.
    pub(crate) fn in_memory(settings: &[(&str, &str)]) -> Self {
        Self::new(&[&[("memory_backed", "1"), ("discard", "1")], settings].concat())
    }

    /// One that completes each request after so many nanoseconds.
    pub(crate) fn that_takes(ns: u64, settings: &[(&str, &str)]) -> Self {
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
