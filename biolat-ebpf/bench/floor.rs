//! Benchmark only, never shipped: the cost of a minimal probe. `empty` is the cost of a call and of measuring it; `floor` adds
//! the minimum needed to measure a latency: the clock, one member of the request, and one counter.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[allow(unused_macros, unused_imports, reason = "the floor needs no constants")]
#[path = "../src/constants.rs"]
mod constants;
#[path = "../src/object.rs"]
mod object;

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};

use constants::field;

#[btf_map]
static SUM: PerCpuArray<u64, 1> = PerCpuArray::new();

#[btf_tracepoint(function = "block_rq_complete")]
fn empty(_: BtfTracePointContext) -> i32 {
    0
}

#[btf_tracepoint(function = "block_rq_complete")]
fn floor(ctx: BtfTracePointContext) -> i32 {
    let request: *const u8 = ctx.arg(0);
    let Some(sum) = SUM.get_ptr_mut(0) else { return 0 };
    // SAFETY: the helper has no precondition.
    let now = unsafe { bpf_ktime_get_ns() };
    let latency = now.wrapping_sub(field!(u64, request, start_time_ns));
    // SAFETY: this CPU's own sum.
    unsafe { *sum = (*sum).wrapping_add(latency) };
    0
}
