//! The probe. This file has the entry points of its programs. `common_case` and `rare_case` record a completion. `marks` tells the
//! understudy which completions have been recorded, `accounting` decides what a completion means, `workload` finds the counters of
//! a cgroup, `slow` sends records of single I/Os, `requeue` counts requeues. `request` reads kernel memory, `constants` has the
//! constants that the daemon relocates, `maps` the maps. `inflight`, `cgroup_exists` and `link_references`
//! are not attached: the daemon runs them.

#![cfg_attr(not(test), no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod accounting;
mod common_case;
mod constants;
mod inflight;
mod kernel_memory;
mod maps;
mod marks;
mod maximum;
mod object;
mod rare_case;
mod record;
mod request;
mod requeue;
mod slow;
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
    // First, because reading the clock waits for the instructions in flight.
    let now = now();
    if !marks::mark_or_leave(&ctx, now) {
        count::<First>(&ctx, now);
    }
    0
}

/// Records the completions for which the kernel refused to run the first program, because that was already running on the CPU. It
/// is attached after the first program, at the first refusal: see [`marks`].
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

/// `block_rq_requeue(struct request *rq)`; before 5.11, `block_rq_requeue(struct request_queue *q, struct request *rq)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L104>
#[btf_tracepoint(function = "block_rq_requeue")]
fn block_rq_requeue(ctx: BtfTracePointContext) -> i32 {
    requeue::count(&ctx);
    0
}

/// Looks at requests in flight. Only the daemon runs it, with the arguments of [`inflight::look`].
#[raw_tracepoint(tracepoint = "block_rq_complete")]
fn inflight(ctx: RawTracePointContext) -> i32 {
    inflight::look(&ctx);
    0
}

/// Whether a cgroup still exists: 1 or 0. Only the daemon runs it, with the arguments of [`workload::exists`].
///
/// Without the macro for raw tracepoints, because that always returns 0.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/block_rq_complete")]
extern "C" fn cgroup_exists(ctx: *mut c_void) -> i32 {
    workload::exists(&RawTracePointContext::new(ctx))
}

/// How many hold a link. Nothing triggers it but the daemon, with the arguments that [`takeover::link_references`] names.
#[unsafe(no_mangle)]
#[unsafe(link_section = "raw_tp/block_rq_complete")]
extern "C" fn link_references(ctx: *mut c_void) -> i32 {
    takeover::link_references(&RawTracePointContext::new(ctx))
}

/// Keeps the tracepoint in use during a takeover, with the next one: the kernel attaches one program only once before 6.10.
#[btf_tracepoint(function = "block_rq_complete")]
fn placeholder(_: BtfTracePointContext) -> i32 {
    0
}

#[btf_tracepoint(function = "block_rq_complete")]
fn other_placeholder(_: BtfTracePointContext) -> i32 {
    0
}
