//! The programs of `biolat processes`: one at the start of a request, one at its completion. They are a separate object, loaded
//! only by that command.
//!
//! - `start` stores the process that submits a request.
//! - `complete` counts the I/O for that process, or sends a record of it.
//! - `maps` defines the maps.
//!
//! The other modules are the probe's.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

#[path = "../src/accounting.rs"]
mod accounting;
mod complete;
#[path = "../src/constants.rs"]
#[allow(unused_macros, unused_imports, reason = "the probe has more constants")]
mod constants;
#[path = "../src/disk.rs"]
mod disk;
#[path = "../src/kernel_memory.rs"]
#[allow(dead_code, reason = "the probe reads more")]
mod kernel_memory;
mod maps;
#[path = "../src/object.rs"]
mod object;
#[path = "../src/request.rs"]
#[allow(dead_code, reason = "the probe reads more")]
mod request;
mod start;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

/// `block_io_start(struct request *rq)`, since Linux 6.5. Runs in the context of the task that submits the first bio.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L223>
#[btf_tracepoint(function = "block_io_start")]
fn block_io_start(ctx: BtfTracePointContext) -> i32 {
    start::store(&ctx);
    0
}

/// `block_rq_insert(struct request *rq)`, before Linux 6.5; before 5.11, except in late releases of 5.10:
/// `block_rq_insert(struct request_queue *q, struct request *rq)`
///
/// <https://github.com/torvalds/linux/blob/v6.1/include/trace/events/block.h#L206>
#[btf_tracepoint(function = "block_rq_insert")]
fn block_rq_insert(ctx: BtfTracePointContext) -> i32 {
    start::store(&ctx);
    0
}

/// `block_rq_issue`, with the same arguments. A request that was inserted may be issued by any task.
#[btf_tracepoint(function = "block_rq_issue")]
fn block_rq_issue(ctx: BtfTracePointContext) -> i32 {
    start::store_unless_inserted(&ctx);
    0
}

/// `block_rq_complete(struct request *rq, blk_status_t error, unsigned int nr_bytes)`
#[btf_tracepoint(function = "block_rq_complete")]
fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    let now = request::now();
    complete::record(&ctx, now);
    0
}
