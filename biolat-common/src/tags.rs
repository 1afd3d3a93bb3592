//! Waits for a free tag.

use core::mem::size_of;

/// The tags that a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Pool {
    /// The driver's: without a scheduler, each request needs one from its allocation on.
    Driver = 0,
    /// The scheduler's.
    Scheduler = 1,
    /// Those that a driver reserves for its own commands.
    Reserved = 2,
}

/// Number of pools.
pub const POOLS: usize = 3;

/// Waits on one device. A wait is one sleep: a task that finds no free tag when it wakes up waits again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TagWaits {
    /// Number of waits, by [`Pool`].
    pub waits: [u64; POOLS],
    /// Number of tags of the hardware queue at the latest wait, by [`Pool`]; 0 for reserved tags.
    pub tags: [u64; POOLS],
}

const _: () = assert!(size_of::<TagWaits>() == 48);

/// Maximum number of devices whose waits are counted.
pub const MAX_DEVICES: usize = 1024;
