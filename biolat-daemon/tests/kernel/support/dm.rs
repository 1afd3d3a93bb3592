//! Device mapper devices.

use super::{block, run};

/// A dm device, removed on drop.
pub(crate) struct Mapped {
    /// Name such as `dm-0`.
    pub(crate) name: String,
    label: &'static str,
}

impl Mapped {
    pub(crate) fn create(label: &'static str, table: &str) -> Self {
        Self::with_options(label, &["--table", table])
    }

    /// Creates a device with an id as assigned by multipathd.
    pub(crate) fn multipath(label: &'static str, table: &str) -> Self {
        Self::with_uuid(label, &format!("mpath-{label}"), table)
    }

    pub(crate) fn with_uuid(label: &'static str, uuid: &str, table: &str) -> Self {
        Self::with_options(label, &["--uuid", uuid, "--table", table])
    }

    fn with_options(label: &'static str, options: &[&str]) -> Self {
        run("dmsetup", &[&["create", label, "--noudevsync"], options].concat());
        Self { name: block::device_with("dm/name", label), label }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        run("dmsetup", &["remove", "--noudevsync", self.label]);
    }
}
