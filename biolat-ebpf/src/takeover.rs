//! For the takeover of a probe by another version, see `biolat-probe/src/takeover.rs`.

use aya_ebpf::programs::RawTracePointContext;

use crate::kernel_memory::{open_file, read_u64};

/// The references to a link that this file descriptor of the daemon has open, and to the open file, as a sum that means
/// something only beside that of another link; 0 if it cannot be read. Arguments: the descriptor, and the offsets of the file's
/// count, of its private data, which is the link, and of the link's count.
#[inline(always)]
pub(crate) fn link_references(ctx: &RawTracePointContext) -> i32 {
    let [descriptor, count, private, link_count]: [u64; 4] = [ctx.arg(0), ctx.arg(1), ctx.arg(2), ctx.arg(3)];
    let Some(file) = open_file(descriptor) else { return 0 };
    let link = read_u64(file, private as u32);
    read_u64(file, count as u32).wrapping_add(read_u64(link, link_count as u32)) as i32
}
