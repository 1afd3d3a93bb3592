//! MD devices.

use super::{null_blk::NullBlk, run};

/// The array `md0`, stopped on drop.
pub(crate) struct Array;

impl Array {
    /// Combines disks of 256 MiB. `level` is a number, as in `raid5`.
    pub(crate) fn create(level: u32, disks: &[NullBlk]) -> Self {
        let module = match level {
            5 => "raid456".to_owned(),
            level => format!("raid{level}"),
        };
        run("modprobe", &[&module]);
        let paths: Vec<_> = disks.iter().map(|disk| disk.path().display().to_string()).collect();
        let (level_option, count) = (format!("--level={level}"), format!("--raid-devices={}", paths.len()));
        let mut arguments = vec!["--create", "/dev/md0", &level_option, &count, "--assume-clean", "--run"];
        arguments.extend(["--metadata=1.0", "--quiet"]);
        // Arrays without redundancy have no bitmap.
        if level != 0 {
            arguments.push("--bitmap=none");
        }
        arguments.extend(paths.iter().map(String::as_str));
        run("mdadm", &arguments);
        Self
    }
}

impl Drop for Array {
    fn drop(&mut self) {
        run("mdadm", &["--stop", "/dev/md0"]);
    }
}
