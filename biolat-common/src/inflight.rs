//! How the daemon asks which requests of a device have not completed: arguments and result of a program that it runs.

use core::mem::size_of;

/// Slots of requests that one run looks at.
pub const SLOTS_PER_RUN: u32 = 256;

/// More slots than any hardware queue has: a larger number was not read from one.
pub const MAX_SLOTS: u32 = 1 << 16;

/// Which requests of a hardware queue to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Tags {
    /// Those with a tag of the driver.
    Driver = 0,
    /// Those with a tag of the I/O scheduler, dispatched or not.
    Scheduler = 1,
}

/// What one run found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Found {
    /// Slots of these tags; 0 if the hardware queue has none.
    pub slots: u32,
    /// 1 if requests of the hardware queue have tags of a scheduler.
    pub has_scheduler: u32,
    /// Requests that have not completed.
    pub requests: u32,
    /// Those of them without a timestamp.
    pub untimed: u32,
    /// When the oldest one was allocated; 0 if none has a timestamp.
    pub oldest_allocated_at: u64,
    /// The time after the last look.
    pub now: u64,
}

const _: () = assert!(size_of::<Found>() == 32);
