//! The program that the daemon runs to survey requests in flight: its limits and its result.

use core::mem::size_of;

/// Number of request slots that one run looks at.
pub const SLOTS_PER_RUN: u32 = 64;

/// Upper limit on the slots of a hardware queue. A larger number means that the memory read is not a hardware queue.
pub const MAX_SLOTS: u32 = 1 << 16;

/// Upper limit on file descriptor numbers; the program does not know the size of the descriptor table.
pub const MAX_DESCRIPTOR: u64 = 1 << 16;

/// The result of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Found {
    /// Number of slots of the hardware queue; 0 if the file descriptor does not refer to a hardware queue.
    pub slots: u32,
    /// Number of requests in flight.
    pub requests: u32,
    /// Allocation time of the oldest request; 0 if none has a timestamp.
    pub oldest_allocated_at: u64,
    /// Time at the end of the run.
    pub now: u64,
}

const _: () = assert!(size_of::<Found>() == 24);
