//! Marks tell the understudy which completions the first program has recorded. They are kept in a table with a line for each
//! kernel stack frame that calls the two programs. Both are called from the same frame for a completion, and no two live
//! frames have the same address. So only runs of one frame write its line, on any CPU.

use core::mem::size_of;

use crate::hash::spread;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mark {
    /// The address of the programs' context, which is in the frame, without [`FRAME_BITS`]; 0: the line is free.
    pub frame: u64,
    /// The latest completion that the first program has recorded in this frame; 0 once the understudy has seen it.
    pub completion: u64,
    /// When the line was last used.
    pub at: u64,
    /// Fills a cache line.
    pub padding: [u64; 5],
}

/// The number of low bits of an address that are ignored. The kernel shifts a task's frames by up to 1 KiB in each system call;
/// with these bits a task would need a line for each offset. A task's stack has only one such frame at a time, so frames remain
/// distinct. An interrupt stack may have several, because interrupts nest. They are farther apart: saved registers and a dozen
/// functions of the block layer and the driver are between them.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/randomize_kstack.h#L31>
pub const FRAME_BITS: u32 = 9;

/// Lines for each possible CPU.
pub const LINES_PER_CPU: u32 = 64;

/// The number of lines to try for a frame, beginning with the one that its hash selects.
pub const PROBES: u32 = 8;

/// A frame may claim a line that has not been used for this long.
pub const STALE_NS: u64 = 60_000_000_000;

/// The first place for a frame's line. The number of lines is a power of two.
#[inline(always)]
#[must_use]
pub const fn place(frame: u64, lines: u32) -> u32 {
    (spread(frame) >> 32) as u32 & (lines - 1)
}

/// The number of lines for this number of possible CPUs.
#[must_use]
pub const fn lines(cpus: u32) -> u32 {
    cpus.next_power_of_two() * LINES_PER_CPU
}

const _: () = assert!(size_of::<Mark>() == 64);

#[cfg(test)]
mod tests {
    use super::{FRAME_BITS, PROBES, lines, place};

    /// Stacks are at least 16 KiB apart, and completions are called at similar depths.
    #[test]
    fn frames_of_many_stacks_get_a_line() {
        let lines = lines(2);
        let mut taken = [false; 128];
        assert_eq!(taken.len(), lines as usize);
        for number in 0..u64::from(lines / 2) {
            let (stack, moved) = (number / 3, number % 3);
            let frame = (0xffff_c900_0000_3b58 + stack * 0x8000 + (moved << FRAME_BITS)) >> FRAME_BITS;
            let places = (0..PROBES).map(|step| (place(frame, lines) + step) & (lines - 1));
            let free = places.map(|place| place as usize).find(|&place| !taken[place]);
            taken[free.expect("a free line")] = true;
        }
    }
}
