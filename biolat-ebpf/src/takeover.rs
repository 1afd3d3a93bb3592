//! Used when the daemon takes over from a probe of another version: see `biolat-probe/src/takeover.rs`.

use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_memory::{open_file, read_u64};

/// The reference count of a link that the daemon has open at this file descriptor, plus the reference count of the open file. The
/// sum is meaningful only when compared with another link's sum; 0 if it cannot be read. Arguments: the descriptor, the offset of
/// the count in the file, the offset of the file's private data, which is the link, and the offset of the count in the link.
#[inline(always)]
pub(crate) fn link_references(ctx: &RawTracePointContext) -> i32 {
    let [descriptor, count, private, link_count]: [u64; 4] = [ctx.arg(0), ctx.arg(1), ctx.arg(2), ctx.arg(3)];
    let Some(file) = open_file(descriptor) else { return 0 };
    let link = read_u64(file, private as u32);
    read_u64(file, count as u32).wrapping_add(read_u64(link, link_count as u32)) as i32
}
