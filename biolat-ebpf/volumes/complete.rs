//! Counts a bio of a volume that has ended.

use aya_ebpf::programs::BtfTracePointContext;
use biolat_common::{
    bucket::{LIMIT_NS, cell},
    status::STATUSES,
};

use crate::{
    bio::Bio,
    constants::member,
    maps::{self, Role},
    start,
};

/// `BLK_STS_AGAIN`: a bio with `REQ_NOWAIT` that would have waited. It is no I/O; its owner submits another one.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h#L118>
const AGAIN: u8 = 12;

#[inline(always)]
pub(crate) fn count<R: Role>(ctx: &BtfTracePointContext, now: u64) {
    let (queue, bio): (*const u8, *const u8) = (ctx.arg(0), ctx.arg(1));
    let bio = Bio::at(bio);
    let Some((disk, device)) = bio.disk() else { return };
    let Some(volume) = maps::volume(device) else { return };
    // bcache and NVMe multipath devices end the bio on one queue and leave the bio on another device.
    if member!(u64, disk.pointer(), volumes.disk_queue) as *const u8 != queue {
        return;
    }
    let Some(start) = start::take(bio.key(device)) else { return };
    maps::count_taken::<R>();
    let status = bio.status();
    if status == AGAIN {
        return;
    }
    let Some(counters) = maps::counters::<R>(volume.counters, bio.group()) else { return };
    let elapsed = start.elapsed(now);
    let in_range = if elapsed < LIMIT_NS { elapsed } else { LIMIT_NS - 1 };
    // SAFETY: this CPU's own counters; see `maps::counters`.
    let counters = unsafe { &mut *counters };
    counters.bytes = counters.bytes.wrapping_add(u64::from(start.bytes as u32));
    counters.total_ns = counters.total_ns.wrapping_add(elapsed);
    let count = &mut counters.cells[cell(in_range)];
    *count = count.wrapping_add(1);
    if status != 0 {
        let status = usize::from(status);
        let count = &mut counters.errors[if status < STATUSES { status } else { STATUSES - 1 }];
        *count = count.wrapping_add(1);
    }
}
