//! The SCSI debug driver's one drive: kept in memory, and wrong as often as it is told to be.

use std::{thread, time::Duration};

use super::{block, daemon::wait_for, run};

/// Gone when it is dropped.
pub(crate) struct ScsiDebug {
    pub(crate) name: String,
}

/// What the driver can be told to do wrong.
#[derive(Clone, Copy)]
pub(crate) enum Wrong {
    /// Sectors 0x1234 to 0x123d cannot be read.
    Medium = 2,
    /// Every so often a command moves half of its bytes.
    Short = 0x100,
    /// Every so often a command has to be sent again later.
    Busy = 0x8000,
}

impl ScsiDebug {
    /// A drive of 256 MiB.
    pub(crate) fn load() -> Self {
        let parameters =
            ["scsi_debug", "dev_size_mb=256", "lbpu=1", "lbpws=1", "delay=0", "per_host_store=0"];
        run("modprobe", &parameters);
        let found = || block::devices_with("device/model", "scsi_debug").pop();
        wait_for("the drive of scsi_debug", || found().is_some());
        let name = found().unwrap();
        wait_for("its size", || block::number(&name, "size") == 256 << 11);
        thread::sleep(Duration::from_millis(300));
        Self { name }
    }

    /// From now on something goes wrong, every so many commands.
    pub(crate) fn goes(&self, wrong: Wrong, every: u32) {
        let set = |name: &str, value: String| {
            std::fs::write(format!("/sys/bus/pseudo/drivers/scsi_debug/{name}"), value).unwrap();
        };
        set("every_nth", every.to_string());
        set("opts", (wrong as u32).to_string());
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
