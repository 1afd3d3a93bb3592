//! A device whose writes can be made to hang: a loop device on a file in a file system that can be frozen.

use std::process::{Child, Command, Stdio};

use super::{loop_device::LoopDevice, mount::Mount, run};

/// Seconds after which a frozen file system thaws by itself, even if the test is killed.
const LONGEST_FREEZE: &str = "16";

/// Fields are dropped in this order: the device, then the file system below it.
pub(crate) struct Freezable {
    pub(crate) device: LoopDevice,
    mount: Mount,
    _lower: LoopDevice,
}

impl Freezable {
    pub(crate) fn attach(name: &str) -> Self {
        let lower = LoopDevice::attach(&format!("{name}-below"), true);
        let mount = Mount::new_ext4(name, &lower.path());
        let device = LoopDevice::attach_in(mount.folder(), false);
        Self { device, mount, _lower: lower }
    }

    /// Returns the mount point of the file system.
    pub(crate) fn place(&self) -> &str {
        self.mount.place()
    }

    /// Makes all further writes hang; reads still complete.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        let place = self.mount.place();
        let mut thaw_later = Command::new("sh");
        thaw_later.args(["-c", "sleep $0; fsfreeze --unfreeze $1", LONGEST_FREEZE, place]);
        thaw_later.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let thaw_later = thaw_later.spawn().unwrap();
        let frozen = Frozen { mount: &self.mount, thaw_later };
        run("fsfreeze", &["--freeze", place]);
        frozen
    }
}

/// Thaws the file system on drop.
pub(crate) struct Frozen<'a> {
    mount: &'a Mount,
    thaw_later: Child,
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").args(["--unfreeze", self.mount.place()]).output();
        let _ = self.thaw_later.kill();
        let _ = self.thaw_later.wait();
    }
}
