//! The probe. This file contains only the entry points of its programs.
//!
//! Modules of the programs that are attached to tracepoints:
//!
//! - `common_case` and `rare_case` record a completion.
//! - `marks` tells the understudy which completions the first program has recorded.
//! - `accounting` classifies a completion the way the kernel's disk statistics do.
//! - `workload` finds the counters of a cgroup.
//! - `slow` sends records of single I/Os to the daemon, and `names` finds the file and the process of each.
//! - `requeue` counts requeues.
//! - `tag_wait` counts waits for a free tag.
//!
//! Never attached, only run by the daemon: `inflight`, `cgroup_exists` and `link_references`.
//!
//! `request` reads requests and `disk` their disks, `kernel_memory` reads other kernel objects, `constants` defines the constants that the daemon
//! relocates, and `maps` defines the maps.

#![cfg_attr(not(test), no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod accounting;
mod atomic;
mod common_case;
mod constants;
mod disk;
mod in_place;
mod inflight;
mod kernel_memory;
mod maps;
mod marks;
mod maximum;
mod names;
mod number;
mod object;
mod rare_case;
mod record;
mod request;
mod requeue;
mod slow;
mod tag_wait;
mod takeover;
mod workload;

use core::ffi::c_void;

use aya_ebpf::{
    macros::{btf_tracepoint, raw_tracepoint},
    programs::{BtfTracePointContext, RawTracePointContext},
};

use maps::{First, Program, Understudy};
use request::{Completion, now};

/// `block_rq_complete(struct request *rq, blk_status_t error, unsigned int nr_bytes)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L145>
#[btf_tracepoint(function = "block_rq_complete")]
fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    // Comes first: on x86-64, reading the clock waits for all earlier loads, and the probe has issued none yet.
    let now = now();
    if !marks::mark_or_leave(&ctx, now) {
        count::<First>(&ctx, now);
    }
    0
}

/// Records the completions for which the kernel refused to run the first program because it was already running on that CPU.
/// Attached after the first program, when the kernel first refuses a run: see [`marks`].
#[btf_tracepoint(function = "block_rq_complete")]
fn understudy(ctx: BtfTracePointContext) -> i32 {
    let now = now();
    if !marks::is_recorded(&ctx) {
        maps::count_taken();
        count::<Understudy>(&ctx, now);
    }
    0
}

#[inline(always)]
fn count<P: Program>(ctx: &BtfTracePointContext, now: u64) {
    if !common_case::record::<P>(&Completion::from_arguments(ctx), now) {
        rare_case::record::<P>(ctx, now);
        slow::send_if_slow::<P>(ctx, now);
    }
}

/// `block_rq_requeue(struct request *rq)`; before 5.11, except in late releases of 5.10:
/// `block_rq_requeue(struct request_queue *q, struct request *rq)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L104>
#[btf_tracepoint(function = "block_rq_requeue")]
fn block_rq_requeue(ctx: BtfTracePointContext) -> i32 {
    requeue::count(&ctx);
    0
}

/// `block_rq_tag_wait(struct request_queue *q, struct blk_mq_hw_ctx *hctx, bool is_sched_tag, unsigned int alloc_flags)`, since 7.3
#[btf_tracepoint(function = "block_rq_tag_wait")]
fn block_rq_tag_wait(ctx: BtfTracePointContext) -> i32 {
    tag_wait::count(&ctx);
    0
}

/// Surveys requests in flight. Only the daemon runs it, with the arguments of [`inflight::look`]: since 5.10 `BPF_PROG_TEST_RUN`
/// passes numbers to a raw tracepoint program. The tracepoint is required but never used.
#[raw_tracepoint(tracepoint = "block_rq_complete")]
fn inflight(ctx: RawTracePointContext) -> i32 {
    inflight::look(&ctx);
    0
}

/// Whether a cgroup still exists: 1 or 0. Only the daemon runs it, with the arguments of [`workload::exists`].
///
/// Does not use the macro for raw tracepoints, which makes a program always return 0.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/block_rq_complete")]
extern "C" fn cgroup_exists(ctx: *mut c_void) -> i32 {
    workload::exists(&RawTracePointContext::new(ctx))
}

/// The reference count of a link. Only the daemon runs it, with the arguments of [`takeover::link_references`].
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/block_rq_complete")]
extern "C" fn link_references(ctx: *mut c_void) -> i32 {
    takeover::link_references(&RawTracePointContext::new(ctx))
}

/// Keeps two functions on the tracepoint during a takeover, together with [`other_placeholder`]: see
/// `biolat-probe/src/takeover.rs`. Two different programs, because before 6.10 the kernel does not attach the same one twice.
#[btf_tracepoint(function = "block_rq_complete")]
fn placeholder(_: BtfTracePointContext) -> i32 {
    0
}

#[btf_tracepoint(function = "block_rq_complete")]
fn other_placeholder(_: BtfTracePointContext) -> i32 {
    0
}
