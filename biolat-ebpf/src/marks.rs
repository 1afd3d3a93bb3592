//! What the first program has recorded, for the understudy: see [`biolat_common::mark`]. The first program writes its frame's line
//! before it records a completion. The understudy, which the kernel calls next and from the same frame, finds there whether it did.
//!
//! If there is no line for a frame, the first program leaves the completion to the understudy.

use aya_ebpf::{EbpfContext as _, programs::BtfTracePointContext};
use biolat_common::mark::{FRAME_BITS, Mark, PROBES, STALE_NS, place};

use crate::{constants::option_const, maps, request::Completion};

/// For the first program: marks the completion as recorded. `true`: the understudy has to record it.
#[inline(always)]
pub(crate) fn is_left(ctx: &BtfTracePointContext, now: u64) -> bool {
    if option_const!(mark_lines) == 0 || !maps::is_marking() {
        return false;
    }
    let is_left = mark_completion(frame(ctx), completion(ctx), now) == 0;
    if is_left {
        maps::count_left();
    }
    is_left
}

/// For the understudy: whether the first program has recorded the completion.
#[inline(always)]
pub(crate) fn is_recorded(ctx: &BtfTracePointContext) -> bool {
    take_mark(frame(ctx), completion(ctx)) != 0
}

/// Writes the line of a frame; 0: it has none, and gets none.
///
/// Global functions, which the kernel verifies once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn mark_completion(frame: u64, completion: u64, now: u64) -> u32 {
    let (mark, is_new) = match line_of(frame) {
        Some(mark) => (mark, false),
        None => match claim(frame, now) {
            Some(mark) => (mark, true),
            None => return 0,
        },
    };
    // SAFETY: in bounds; nothing else writes the line of a frame that is in use.
    unsafe {
        (&raw mut (*mark).at).write_volatile(now);
        (&raw mut (*mark).completion).write_volatile(completion);
        // Another frame may have found it stale until now.
        u32::from(!is_new || (&raw const (*mark).frame).read_volatile() == frame)
    }
}

/// Takes the mark from the line of a frame; 0: there is none, or another one.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_mark(frame: u64, completion: u64) -> u32 {
    let Some(mark) = line_of(frame) else { return 0 };
    // SAFETY: in bounds; nothing else writes the line of a frame that is in use.
    unsafe {
        let marked = &raw mut (*mark).completion;
        if marked.read_volatile() != completion {
            return 0;
        }
        // The next completion may be that of an equal request.
        marked.write_volatile(0);
    }
    1
}

#[inline(always)]
fn line_of(frame: u64) -> Option<*mut Mark> {
    let first = place(frame, option_const!(mark_lines));
    for step in 0..PROBES {
        let mark = line(first + step)?;
        // SAFETY: in bounds, and one number.
        if unsafe { (&raw const (*mark).frame).read_volatile() } == frame {
            return Some(mark);
        }
    }
    None
}

/// Takes a line that is free, or that has not been used for long, for a frame. There may be none.
#[inline(always)]
fn claim(frame: u64, now: u64) -> Option<*mut Mark> {
    let first = place(frame, option_const!(mark_lines));
    for step in 0..PROBES {
        let mark = line(first + step)?;
        // SAFETY: in bounds; several CPUs may claim the line at a time, and one of them gets it.
        unsafe {
            let owner = (&raw const (*mark).frame).read_volatile();
            let used = (&raw const (*mark).at).read_volatile();
            if owner != 0 && now < used.wrapping_add(STALE_NS) {
                continue;
            }
            if replace(&raw mut (*mark).frame, owner, frame) {
                return Some(mark);
            }
        }
    }
    None
}

/// Writes a number if the old one is there, in one step.
///
/// # Safety
///
/// The place must be in bounds.
#[inline(always)]
unsafe fn replace(place: *mut u64, old: u64, new: u64) -> bool {
    #[cfg(target_arch = "bpf")]
    {
        let found: u64;
        // SAFETY: the caller vouches for the place. `core` has this for no target on which some processors lack it.
        unsafe {
            core::arch::asm!(
                "r0 = cmpxchg_64({place} + 0, r0, {new})",
                place = in(reg) place,
                new = in(reg) new,
                inout("r0") old => found,
                options(nostack)
            );
        }
        found == old
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(place) }.compare_exchange(old, new, SeqCst, SeqCst).is_ok()
    }
}

#[inline(always)]
fn line(number: u32) -> Option<*mut Mark> {
    maps::mark(number & (option_const!(mark_lines) - 1))
}

/// The frame of the kernel's stack that has the programs' arguments: see [`FRAME_BITS`]. Never 0.
#[inline(always)]
fn frame(ctx: &BtfTracePointContext) -> u64 {
    number(ctx.as_ptr().cast()) >> FRAME_BITS
}

/// This completion of this request. Never 0.
#[inline(always)]
fn completion(ctx: &BtfTracePointContext) -> u64 {
    let request = Completion::of_request(ctx.arg(0));
    // Sectors and bytes change with each part of a request, and the time with each of its lives.
    let bytes = u64::from(request.remaining_bytes()) << 32;
    let life = request.allocated_at().rotate_left(20) ^ request.sector().rotate_left(48) ^ bytes;
    number(request.pointer()) ^ life | 1
}

/// A pointer as a number: the kernel has it that only the difference of two pointers is one.
#[inline(always)]
fn number(pointer: *const u8) -> u64 {
    #[cfg(target_arch = "bpf")]
    {
        let number: u64;
        // SAFETY: subtracts one register from another.
        unsafe {
            core::arch::asm!(
                "{pointer} -= {anchor}",
                pointer = inout(reg) pointer => number,
                anchor = in(reg) maps::anchor(),
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    {
        (pointer as u64).wrapping_sub(maps::anchor() as u64)
    }
}
