//! CPUs that a test takes offline.

use std::{fs, thread};

use super::{
    load::{Target, pin_to_cpu},
    null_blk::NullBlk,
};

/// CPUs that are offline until this is dropped.
pub(crate) struct OfflineCpus(&'static [usize]);

impl OfflineCpus {
    pub(crate) fn begin(cpus: &'static [usize]) -> Self {
        let offline = Self(cpus);
        offline.set(false);
        offline
    }

    fn set(&self, online: bool) {
        for cpu in self.0 {
            let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
            fs::write(path, if online { "1" } else { "0" }).unwrap();
        }
    }
}

impl Drop for OfflineCpus {
    fn drop(&mut self) {
        self.set(true);
    }
}

/// Reads on a CPU. A null_blk device with `irqmode` 0 completes a request on the CPU that submits it.
pub(crate) fn read_on(cpu: usize, disk: &NullBlk, reads: u64) {
    thread::scope(|scope| {
        scope.spawn(|| {
            pin_to_cpu(cpu);
            Target::open(&disk.path()).read(reads);
        });
    });
}
