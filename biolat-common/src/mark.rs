//! Marks tell the understudy which completions the first program has recorded. The table of marks has one line for each kernel
//! stack frame from which the programs run. The context of a program is an array on the stack of `bpf_trace_run3()`.
//! `__traceiter_block_rq_complete()` calls that function once for each program, at the same depth, so for one completion both
//! programs get a context at the same address, which no other completion in progress has. With only one program attached, a
//! static call bypasses the iterator, so the marks made before the understudy is attached are in other lines, which is harmless.

use core::mem::size_of;

use crate::hash::spread;

/// One line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mark {
    /// Distance of the programs' context in the frame from a fixed address, without the low [`FRAME_BITS`] bits. 0 if the line is
    /// free.
    pub frame: u64,
    /// Latest completion that the first program recorded in this frame; 0 after the understudy has seen it.
    pub completion: u64,
    /// Time of the last use of the line.
    pub at: u64,
    /// Fills up the cache line.
    pub padding: [u64; 5],
}

/// Number of low address bits that are ignored. The kernel shifts a task's frames by up to 1 KiB in each system call; if these
/// bits counted, a task would need a line for each offset, but without them it needs at most three. Frames remain distinct: a
/// task's stack has only one such frame at a time. An interrupt stack may have several (from a hard interrupt in a softirq), but
/// they are more than 512 bytes apart, separated by saved registers and a dozen functions of the block layer and the driver.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/randomize_kstack.h#L31>
pub const FRAME_BITS: u32 = 9;

/// Number of lines per possible CPU.
pub const LINES_PER_CPU: u32 = 64;

/// Number of places to try for a frame's line, beginning with the one that its hash selects.
pub const PROBES: u32 = 8;

/// Age of a line at which another frame may claim it, in nanoseconds since its last use.
pub const STALE_NS: u64 = 60_000_000_000;

/// Returns the first place for a frame's line. The number of lines is a power of two.
#[inline(always)]
#[must_use]
pub const fn place(frame: u64, lines: u32) -> u32 {
    (spread(frame) >> 32) as u32 & (lines - 1)
}

/// Returns the number of lines for this number of possible CPUs.
#[must_use]
pub const fn lines(cpus: u32) -> u32 {
    cpus.next_power_of_two() * LINES_PER_CPU
}

const _: () = assert!(size_of::<Mark>() == 64);

#[cfg(test)]
mod tests {
    use super::{FRAME_BITS, PROBES, lines, place};

    /// Stacks are at least 16 KiB apart, and completions happen at similar depths.
    #[test]
    fn frames_of_many_stacks_find_lines() {
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
