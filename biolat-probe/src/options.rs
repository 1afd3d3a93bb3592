//! The probe's options, and the constants that follow from them.

use std::time::Duration;

use anyhow::Result;
use biolat_common::{constants::ProbeOptions, mark, names, slow};

use super::{abilities::Ability, banks::Room, cpus, kernel::Kernel, series_arrays::series_bytes, workloads};

/// What the probe does in addition to counting latencies.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether the kernel measures the probe's run time.
    pub statistics: bool,
    /// I/Os that fail or take at least this long are recorded individually. `None` if none are.
    pub slow: Option<Duration>,
    /// Which names the records of slow and failed I/Os have.
    pub slow_names: SlowNames,
    /// Whether requests are counted by size.
    pub sizes: bool,
    /// Maximum number of workloads with their own counters; 0 if I/Os are not counted by workload.
    pub workloads: u32,
}

/// What the record of a slow or failed I/O names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlowNames {
    /// Nothing.
    Off = 0,
    /// The process.
    Process = 1,
    /// The process and the file.
    File = 2,
}

/// Default of [`Options::workloads`].
pub const DEFAULT_WORKLOADS: u32 = 256;

impl Default for Options {
    fn default() -> Self {
        Self {
            statistics: false,
            slow: None,
            slow_names: SlowNames::File,
            sizes: true,
            workloads: DEFAULT_WORKLOADS,
        }
    }
}

impl Options {
    /// What records name on this kernel: nothing if there are no records or the kernel's layout is unknown.
    pub(super) fn named(&self, kernel: &Kernel) -> SlowNames {
        if self.slow.is_some() && kernel.names.is_some() { self.slow_names } else { SlowNames::Off }
    }

    /// Size of the ring buffer of slow and failed I/Os on this kernel, in bytes.
    pub(super) fn slow_ring_bytes(&self, kernel: &Kernel) -> u32 {
        (if self.named(kernel) == SlowNames::Off { slow::RING_BYTES } else { names::RING_BYTES }) as u32
    }

    /// Returns the constants for a probe with these options, this many slots and this room on this kernel.
    pub(super) fn for_kernel(&self, kernel: &Kernel, slots: u32, room: Room) -> Result<ProbeOptions> {
        let cpus = cpus::in_sysfs()?;
        let slow_ms = self.slow.map_or(0, |slow| slow.as_millis());
        let tables = workloads::tables(workloads_on(kernel, self.workloads), slots, room.cpus());
        Ok(ProbeOptions {
            slow_ms: u32::try_from(slow_ms).unwrap_or(u32::MAX),
            slow_names: self.named(kernel) as u32,
            sizes: u32::from(self.sizes),
            rows: room.rows,
            first_rows: room.first_rows,
            series_bytes: series_bytes(self.sizes),
            workload_slots: tables.slots,
            workload_hashes: tables.hashes,
            mark_lines: if kernel.has(Ability::RecursionGuard) { mark::lines(cpus as u32) } else { 0 },
        })
    }
}

/// Returns the maximum number of workloads on this kernel: 0 if it does not support them.
pub fn workloads_on(kernel: &Kernel, workloads: u32) -> u32 {
    if kernel.has_workloads { workloads } else { 0 }
}
