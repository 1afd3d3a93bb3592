//! For a test, never shipped: the bucket arithmetic as the probe's compiler makes it. Given a latency as its
//! argument, it leaves the cell in a map.

#![no_std]
#![no_main]

use aya_ebpf::{
    btf_maps::Array,
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use biolat_common::bucket;

#[btf_map]
static CELL: Array<u64, 1> = Array::new();

#[raw_tracepoint(tracepoint = "block_rq_complete")]
fn cells(ctx: RawTracePointContext) -> i32 {
    if let Some(cell) = CELL.get_ptr_mut(0) {
        // SAFETY: the map's only entry, and one run at a time.
        unsafe { *cell = bucket::cell(ctx.arg(0)) as u64 };
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
