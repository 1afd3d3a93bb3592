//! How the daemon asks which requests of a device have not completed: the limits and the result of a program that it runs.

use core::mem::size_of;

/// Slots of requests that one run looks at.
pub const SLOTS_PER_RUN: u32 = 64;

/// More slots than any hardware queue has: a larger number was not read from one.
pub const MAX_SLOTS: u32 = 1 << 16;

/// File descriptors from here on are refused: the program does not know how many the table has.
pub const MAX_DESCRIPTOR: u64 = 1 << 16;

/// What one run found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Found {
    /// Slots of the hardware queue; 0 if the file descriptor is not that of one.
    pub slots: u32,
    /// Requests that have not completed.
    pub requests: u32,
    /// When the oldest of them was allocated; 0 if none has a timestamp.
    pub oldest_allocated_at: u64,
    /// The time after the last look.
    pub now: u64,
}

const _: () = assert!(size_of::<Found>() == 24);
