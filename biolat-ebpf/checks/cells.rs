//! For a test, never shipped: the bucket arithmetic as the probe's compiler makes it. Given a latency as its
//! argument, it leaves in a map its cell, and the cell that the common case finds for it.

#![no_std]
#![no_main]

#[path = "../src/object.rs"]
mod object;

use aya_ebpf::{
    btf_maps::Array,
    macros::{btf_map, raw_tracepoint},
    programs::RawTracePointContext,
};
use biolat_common::bucket;

#[btf_map]
static CELL: Array<u64, 2> = Array::new();

#[raw_tracepoint(tracepoint = "block_rq_complete")]
fn cells(ctx: RawTracePointContext) -> i32 {
    for (index, cell) in [bucket::cell(ctx.arg(0)), bucket::usual_cell(ctx.arg(0))].into_iter().enumerate() {
        if let Some(place) = CELL.get_ptr_mut(index as u32) {
            // SAFETY: an entry of the map's, and one run at a time.
            unsafe { *place = cell as u64 };
        }
    }
    0
}
