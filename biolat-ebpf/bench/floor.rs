//! For the bench, never shipped: what any probe at completion costs. `empty` is the cost of being called and
//! measured; `floor` adds the least that a latency takes: the clock, one field of the request, one counter.

#![no_std]
#![no_main]

use core::ptr::read_volatile;

use aya_ebpf::{
    btf_maps::PerCpuArray,
    helpers::bpf_ktime_get_ns,
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};

/// Where a request holds its start: filled before load.
#[unsafe(no_mangle)]
static START_TIME_NS: u32 = 0;

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
    // SAFETY: the request is the tracepoint's, the offset from BTF, and the sum this CPU's own.
    unsafe {
        let offset = read_volatile(&raw const START_TIME_NS) as usize;
        let started: u64 = read_volatile(request.add(offset).cast());
        *sum = (*sum).wrapping_add(bpf_ktime_get_ns().wrapping_sub(started));
    }
    0
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
