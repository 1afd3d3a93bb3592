//! The programs that measure volumes: one at the submission of a bio, one at its end. They are a separate object, attached only
//! while there are volumes to measure.
//!
//! Each has an understudy, for the runs that the kernel refuses because the program is already running on that CPU: a second
//! program on the same tracepoint, which runs after it. No marks are needed: an understudy finds that the start has been noted, or
//! that it has been taken, and does nothing.
//!
//! - `bio` reads bios.
//! - `start` notes when a bio was submitted.
//! - `complete` counts it.
//! - `maps` defines the maps.
//!
//! The other modules are the probe's.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod bio;
mod complete;
#[path = "../src/constants.rs"]
#[allow(unused_macros, unused_imports, reason = "the probe has more constants")]
mod constants;
#[path = "../src/disk.rs"]
mod disk;
mod maps;
#[path = "../src/number.rs"]
mod number;
#[path = "../src/object.rs"]
mod object;
mod start;

use aya_ebpf::{helpers::bpf_ktime_get_ns, macros::btf_tracepoint, programs::BtfTracePointContext};
use maps::{First, Understudy};

/// `block_bio_queue(struct bio *bio)`; before 5.11: `block_bio_queue(struct request_queue *q, struct bio *bio)`
///
/// The kernel calls it once for each bio that is submitted, even if parts of the bio are submitted again.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L383>
#[btf_tracepoint(function = "block_bio_queue")]
fn block_bio_queue(ctx: BtfTracePointContext) -> i32 {
    start::note::<First>(&ctx);
    0
}

/// See [`block_bio_queue`].
#[btf_tracepoint(function = "block_bio_queue")]
fn other_bio_queue(ctx: BtfTracePointContext) -> i32 {
    start::note::<Understudy>(&ctx);
    0
}

/// `block_bio_complete(struct request_queue *q, struct bio *bio)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L327>
#[btf_tracepoint(function = "block_bio_complete")]
fn block_bio_complete(ctx: BtfTracePointContext) -> i32 {
    complete::count::<First>(&ctx, now());
    0
}

/// See [`block_bio_complete`].
#[btf_tracepoint(function = "block_bio_complete")]
fn other_bio_complete(ctx: BtfTracePointContext) -> i32 {
    complete::count::<Understudy>(&ctx, now());
    0
}

#[inline(always)]
fn now() -> u64 {
    // SAFETY: the helper has no argument and no precondition.
    unsafe { bpf_ktime_get_ns() }
}
