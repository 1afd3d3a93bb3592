//! Test only, never shipped: the bucket arithmetic as compiled for the probe. The argument is a latency; its cell, and the cell
//! that the common case finds, are written to a map.

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
    for (index, cell) in [bucket::cell(ctx.arg(0)), bucket::common_cell(ctx.arg(0))].into_iter().enumerate() {
        if let Some(result) = CELL.get_ptr_mut(index as u32) {
            // SAFETY: an entry of the map. The test runs one program at a time.
            unsafe { *result = cell as u64 };
        }
    }
    0
}
