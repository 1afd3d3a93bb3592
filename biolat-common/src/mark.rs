//! What the first program has recorded, for the understudy: a table of lines, one for each frame of the kernel's stacks that the
//! programs are called from. Both are called from the same frame for a completion, and no two frames that are in use share an
//! address. So nothing but the frame's own runs writes its line, on whatever CPU they are.

use core::mem::size_of;

/// A line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Mark {
    /// The frame, by the address of the programs' context there, see [`FRAME_BITS`]; 0: the line is free.
    pub frame: u64,
    /// The latest completion that the first program has recorded there, unless the understudy has seen it.
    pub completion: u64,
    /// When the line was used last.
    pub at: u64,
    /// To the end of a cache line.
    pub padding: [u64; 5],
}

/// A frame is told by its address without so many bits. The kernel moves a task's frames by up to 1 KiB with each system call, and a
/// task would need a line for each place. On a stack that has one frame at a time, that of a task, it makes no difference. Interrupts
/// have another stack, which may have several: that of an interrupt is farther from the frame that it has interrupted, as the
/// registers and a dozen functions of the block layer and the driver are between them.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/randomize_kstack.h#L31>
pub const FRAME_BITS: u32 = 9;

/// Lines for each possible CPU.
pub const LINES_PER_CPU: u32 = 64;

/// Places where the line of a frame can be: the first is that of its hash, the others follow.
pub const PROBES: u32 = 8;

/// A line that has not been used for so long can be taken by another frame.
pub const STALE_NS: u64 = 60_000_000_000;

/// The first place of a frame's line, of this power of two of lines.
#[inline(always)]
#[must_use]
pub const fn place(frame: u64, lines: u32) -> u32 {
    /// 2^64 divided by the golden ratio: neighbouring numbers are far apart.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    (frame.wrapping_mul(SPREAD) >> 32) as u32 & (lines - 1)
}

/// How many lines there are with so many possible CPUs.
#[must_use]
pub const fn lines(cpus: u32) -> u32 {
    cpus.next_power_of_two() * LINES_PER_CPU
}

const _: () = assert!(size_of::<Mark>() == 64);

#[cfg(test)]
mod tests {
    use super::{FRAME_BITS, PROBES, lines, place};

    /// Stacks are 16 KiB apart or more, and completions come from similar depths of them.
    #[test]
    fn frames_of_many_stacks_find_a_line() {
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
