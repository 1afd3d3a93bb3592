//! The probe. Its entry lives here; what a completion means lives in `common_case` and `rare_case`, raw reads of
//! kernel memory in `request`, what the daemon knows better in `told`, maps in `maps`.

#![no_std]
#![no_main]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod common_case;
mod maps;
mod object;
mod rare_case;
mod record;
mod request;
mod told;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use request::{Completion, now};

/// `block_rq_complete(struct request *rq, blk_status_t error, unsigned int nr_bytes)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L145>
#[btf_tracepoint(function = "block_rq_complete")]
fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    // First, as the clock waits for whatever is under way: what comes after it runs at the processor's own pace.
    let now = now();
    if !common_case::record(&Completion::from_arguments(&ctx), now) {
        rare_case::record(&ctx, now);
    }
    0
}
