//! The probe's options, and the constants that follow from them.

use std::time::Duration;

use anyhow::Result;
use biolat_common::{constants::ProbeOptions, mark};

use super::{cpus, kernel::Kernel, workloads};

/// What the probe does besides counting latencies.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the kernel measures the probe's run time.
    pub statistics: bool,
    /// I/Os that take at least this long, or fail, are recorded one by one; `None`: no I/O is.
    pub slow: Option<Duration>,
    /// Whether requests are counted by size.
    pub sizes: bool,
    /// The largest number of workloads with counters of their own; 0: no I/O is counted by workload.
    pub workloads: u32,
}

/// The default of [`Options::workloads`].
pub const DEFAULT_WORKLOADS: u32 = 256;

impl Default for Options {
    fn default() -> Self {
        Self { statistics: false, slow: None, sizes: true, workloads: DEFAULT_WORKLOADS }
    }
}

impl Options {
    /// The constants of a probe with these options, on this kernel and with this many slots.
    pub(super) fn for_kernel(&self, kernel: &Kernel, slots: u32) -> Result<ProbeOptions> {
        let cpus = cpus::in_sysfs()? as u64;
        let slow_ms = self.slow.map_or(0, |slow| slow.as_millis());
        let tables = workloads::tables(workloads_on(kernel, self.workloads), slots, cpus);
        Ok(ProbeOptions {
            slow_ms: u32::try_from(slow_ms).unwrap_or(u32::MAX),
            sizes: u32::from(self.sizes),
            workload_slots: tables.slots,
            workload_hashes: tables.hashes,
            mark_lines: if kernel.refuses_runs { mark::lines(cpus as u32) } else { 0 },
        })
    }
}

/// The largest number of workloads on this kernel.
pub fn workloads_on(kernel: &Kernel, workloads: u32) -> u32 {
    if kernel.has_workloads { workloads } else { 0 }
}
