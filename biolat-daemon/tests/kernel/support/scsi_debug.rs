//! A scsi_debug drive: in memory, with injectable faults.

use std::{thread, time::Duration};

use super::{block, daemon::wait_for, kernel, run};

/// A drive; the driver is unloaded on drop.
pub(crate) struct ScsiDebug {
    pub(crate) name: String,
}

/// Faults that the driver can inject.
#[derive(Clone, Copy)]
pub(crate) enum Fault {
    /// Sectors 0x1234 to 0x123d cannot be read.
    Medium = 2,
    /// A read or write is never answered.
    Timeout = 0x80,
    /// A command transfers half of its bytes.
    Short = 0x100,
    /// A command is rejected as busy, and the kernel requeues it.
    Busy = 0x8000,
}

impl ScsiDebug {
    /// Loads the driver with a 256 MiB drive. Skips the test and returns `None` if the kernels lack the driver.
    pub(crate) fn load() -> Option<Self> {
        if cfg!(target_arch = "aarch64") {
            kernel::skip("Debian's kernels for arm64 have no scsi_debug");
            return None;
        }
        let parameters =
            ["scsi_debug", "dev_size_mb=256", "lbpu=1", "lbpws=1", "delay=0", "per_host_store=0"];
        run("modprobe", &parameters);
        let found = || block::devices_with("device/model", "scsi_debug").pop();
        wait_for("the drive of scsi_debug", || found().is_some());
        let name = found().unwrap();
        wait_for("its size", || block::number(&name, "size") == 256 << 11);
        thread::sleep(Duration::from_millis(300));
        Some(Self { name })
    }

    /// Injects a fault into every nth command, or into none if `every` is 0.
    pub(crate) fn inject(&self, fault: Fault, every: u32) {
        let set = |name: &str, value: String| {
            std::fs::write(format!("/sys/bus/pseudo/drivers/scsi_debug/{name}"), value).unwrap();
        };
        set("every_nth", every.to_string());
        set("opts", (fault as u32).to_string());
    }
}

impl Drop for ScsiDebug {
    fn drop(&mut self) {
        let _ = std::fs::write("/sys/bus/pseudo/drivers/scsi_debug/opts", "0");
        for _ in 0..20 {
            let removed = std::process::Command::new("modprobe").args(["-r", "scsi_debug"]).output();
            if removed.is_ok_and(|output| output.status.success()) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
    }
}
