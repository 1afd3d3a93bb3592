//! Counts tasks that are about to sleep because no tag is free.

use aya_ebpf::programs::BtfTracePointContext;
use biolat_common::tags::Pool;

use crate::{
    constants::{field, layout_const},
    disk::Disk,
    maps,
};

/// Counts the wait for the disk of the queue.
#[inline(always)]
pub(crate) fn count(ctx: &BtfTracePointContext) {
    let (queue, hardware_queue): (*const u8, *const u8) = (ctx.arg(0), ctx.arg(1));
    let (is_scheduler, flags): (u32, u32) = (ctx.arg(2), ctx.arg(3));
    let Some(device) = Disk::at(field!(u64, queue, queue_disk) as *const u8).id() else { return };
    let (pool, tags) = if is_scheduler & 0xff != 0 {
        (Pool::Scheduler, field!(u64, hardware_queue, hctx_sched_tags))
    } else {
        let is_reserved = flags & layout_const!(req_reserved) != 0;
        let pool = if is_reserved { Pool::Reserved } else { Pool::Driver };
        (pool, field!(u64, hardware_queue, hctx_tags))
    };
    let tags = if pool == Pool::Reserved { 0 } else { field!(u32, tags as *const u8, tags_depth) };
    maps::count_tag_wait(device, pool, tags);
}
