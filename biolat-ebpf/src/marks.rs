//! Marks of recorded completions, for the understudy: see [`biolat_common::mark`]. Before the first program records a completion,
//! it marks the completion in the line of its stack frame. The kernel then calls the understudy from the same frame, and the
//! understudy finds the mark there.
//!
//! If no line is available for a frame, the first program leaves the completion to the understudy.

use aya_ebpf::{EbpfContext as _, programs::BtfTracePointContext};
use biolat_common::mark::{FRAME_BITS, Mark, PROBES, STALE_NS, place};

use crate::{constants::option_const, maps, number::number, request::Completion};

/// For the first program: marks the completion as recorded. Returns `true` if it leaves the completion to the understudy instead.
#[inline(always)]
pub(crate) fn mark_or_leave(ctx: &BtfTracePointContext, now: u64) -> bool {
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

/// Marks a completion in the line of its frame; returns 0 if there is no line for it.
///
/// This and [`take_mark`] are global functions, so the kernel verifies each of them once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn mark_completion(frame: u64, completion: u64, now: u64) -> u32 {
    let Some(mark) = line_of(frame).or_else(|| claim(frame, now)) else { return 0 };
    // SAFETY: in bounds. Another frame can claim this line only while `at` is older than `STALE_NS`, that is, before the store to
    // `at`. The check at the end detects such a claim, unless the claim's compare-and-exchange runs just after it.
    unsafe {
        (&raw mut (*mark).at).write_volatile(now);
        (&raw mut (*mark).completion).write_volatile(completion);
        u32::from((&raw const (*mark).frame).read_volatile() == frame)
    }
}

/// Removes a completion's mark from the line of its frame; returns 0 if there is no such mark.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn take_mark(frame: u64, completion: u64) -> u32 {
    let Some(mark) = line_of(frame) else { return 0 };
    // SAFETY: in bounds. Nothing else writes the line of a frame that is in use.
    unsafe {
        let marked = &raw mut (*mark).completion;
        if marked.read_volatile() != completion {
            return 0;
        }
        // The next completion may have the same identifier.
        marked.write_volatile(0);
    }
    1
}

#[inline(always)]
fn line_of(frame: u64) -> Option<*mut Mark> {
    let first = place(frame, option_const!(mark_lines));
    for step in 0..PROBES {
        let mark = line(first + step)?;
        // SAFETY: in bounds, and a single number.
        if unsafe { (&raw const (*mark).frame).read_volatile() } == frame {
            return Some(mark);
        }
    }
    None
}

/// Claims a free or stale line for a frame. `None` if there is none.
#[inline(always)]
fn claim(frame: u64, now: u64) -> Option<*mut Mark> {
    let first = place(frame, option_const!(mark_lines));
    for step in 0..PROBES {
        let mark = line(first + step)?;
        // SAFETY: in bounds. Several CPUs may try to claim the line at the same time; one of them succeeds.
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

/// Atomically replaces the old number with the new one. Returns `false` if the number at this address is not the old one.
///
/// # Safety
///
/// The address must be in bounds.
#[inline(always)]
unsafe fn replace(place: *mut u64, old: u64, new: u64) -> bool {
    #[cfg(target_arch = "bpf")]
    {
        let found: u64;
        // SAFETY: guaranteed by the caller. `core` has no compare-and-exchange for BPF, because older BPF versions lack the
        // instruction.
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

/// Identifies the kernel stack frame that holds the programs' arguments: see [`FRAME_BITS`]. Never 0.
#[inline(always)]
fn frame(ctx: &BtfTracePointContext) -> u64 {
    number(ctx.as_ptr().cast(), maps::anchor()) >> FRAME_BITS
}

/// Identifies this completion of this request. Never 0.
#[inline(always)]
fn completion(ctx: &BtfTracePointContext) -> u64 {
    let request = Completion::of_request(ctx.arg(0));
    // Each part of a request changes the sector and bytes, and reuse of the request's memory changes the timestamp.
    let bytes = u64::from(request.remaining_bytes()) << 32;
    let life = request.allocated_at().rotate_left(20) ^ request.sector().rotate_left(48) ^ bytes;
    number(request.pointer(), maps::anchor()) ^ life | 1
}
