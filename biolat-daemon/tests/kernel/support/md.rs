//! MD devices.

use super::{null_blk::NullBlk, run};

/// The mirror `md0` of two disks, stopped on drop.
pub(crate) struct Raid1;

impl Raid1 {
    pub(crate) fn create(legs: &[NullBlk; 2]) -> Self {
        run("modprobe", &["raid1"]);
        let paths = legs.each_ref().map(NullBlk::path);
        let create = ["--create", "/dev/md0", "--level=1", "--raid-devices=2", "--assume-clean", "--run"];
        let quiet = ["--metadata=1.0", "--bitmap=none", "--quiet"];
        let leg_paths = [paths[0].to_str().unwrap(), paths[1].to_str().unwrap()];
        run("mdadm", &[&create[..], &quiet, &leg_paths].concat());
        Self
    }
}

impl Drop for Raid1 {
    fn drop(&mut self) {
        run("mdadm", &["--stop", "/dev/md0"]);
    }
}
