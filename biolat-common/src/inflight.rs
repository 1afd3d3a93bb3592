//! The program that the daemon runs to look at requests in flight: its limits and its result.

use core::mem::size_of;

/// Request slots that one run looks at.
pub const SLOTS_PER_RUN: u32 = 64;

/// The most slots that a hardware queue can have: a larger number was not read from a hardware queue.
pub const MAX_SLOTS: u32 = 1 << 16;

/// File descriptors from this one on are rejected: the program does not know the size of the table.
pub const MAX_DESCRIPTOR: u64 = 1 << 16;

/// The result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Found {
    /// Slots of the hardware queue; 0 if the file descriptor does not name one.
    pub slots: u32,
    /// Requests in flight.
    pub requests: u32,
    /// When the oldest of them was allocated; 0 if none has a timestamp.
    pub oldest_allocated_at: u64,
    /// The time at the end of the run.
    pub now: u64,
}

const _: () = assert!(size_of::<Found>() == 24);
