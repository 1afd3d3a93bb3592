//! For the bench, never shipped: what any probe at completion costs. `empty` is the cost of being called and
//! measured; `floor` adds the least that a latency takes: the clock, one field of the request, one counter.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[path = "../src/object.rs"]
mod object;
// Of what may be asked the floor asks little.
#[allow(unused_macros, unused_imports)]
#[path = "../src/told.rs"]
mod told;

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};

use told::member;

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
    let lasted = now.wrapping_sub(member!(u64, request, start_time_ns));
    // SAFETY: this CPU's own sum.
    unsafe { *sum = (*sum).wrapping_add(lasted) };
    0
}
