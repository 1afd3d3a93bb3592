//! The probe. This file is its entry; `common_case` and `rare_case` record a completion, `accounting` says what it
//! means, `request` reads kernel memory, `layout` has the constants that the daemon relocates, `maps` the maps.

#![cfg_attr(not(test), no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod accounting;
mod common_case;
mod layout;
mod maps;
mod object;
mod rare_case;
mod record;
mod request;

use aya_ebpf::{macros::btf_tracepoint, programs::BtfTracePointContext};

use request::{Completion, now};

/// `block_rq_complete(struct request *rq, blk_status_t error, unsigned int nr_bytes)`
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/trace/events/block.h#L145>
#[btf_tracepoint(function = "block_rq_complete")]
fn block_rq_complete(ctx: BtfTracePointContext) -> i32 {
    // First, as reading the clock waits for the instructions in flight; nothing after it does.
    let now = now();
    if !common_case::record(&Completion::from_arguments(&ctx), now) {
        rare_case::record(&ctx, now);
    }
    0
}
