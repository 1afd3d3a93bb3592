//! Classifies completions the way the kernel's disk statistics do. This is a pure function, tested on the host.

/// Constants of the running kernel that the classification depends on.
#[derive(Clone, Copy)]
pub(crate) struct Accounting {
    /// `RQF_FLUSH_SEQ`, as a mask.
    pub(crate) flush_sequence: u32,
    /// `RQF_IO_STAT`, as a mask.
    pub(crate) io_stat: u32,
    /// `REQ_OP_FLUSH`.
    pub(crate) op_flush: u32,
    /// The lowest passthrough op.
    pub(crate) op_passthrough: u32,
}

/// What a completion means for diskstats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// The request ends: one I/O.
    End,
    /// Part of the request completes: its bytes are accounted, and the request continues.
    Part,
    /// The kernel does not account the request. It may still have timestamps (with a scheduler), but an I/O missing from the disk
    /// statistics could not be audited, so it is not counted.
    NotAccounted,
    /// Another completion of a request that has already ended.
    Duplicate,
}

impl Accounting {
    /// Follows `blk_account_io_done()` and `blk_account_io_flush()`. `flags` are the `RQF_*` flags, `bytes` out of `remaining`
    /// complete now, and `has_bio` says whether a bio still waits for the request to end.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/block/blk-mq.c#L974>
    /// <https://github.com/torvalds/linux/blob/v6.12/block/blk-flush.c#L126>
    #[inline(always)]
    pub(crate) fn meaning(self, flags: u32, op: u32, bytes: u32, remaining: u32, has_bio: bool) -> Meaning {
        if self.is_in_flush_sequence(flags) && self.is_flush(op) {
            // The flush request itself: accounted even if `queue/iostats` is 0.
            return Meaning::End;
        }
        if flags & self.io_stat == 0 {
            return Meaning::NotAccounted;
        }
        if self.is_in_flush_sequence(flags) || bytes < remaining {
            return Meaning::Part;
        }
        if remaining == 0 && !self.is_passthrough(op) && !has_bio {
            // Request-based dm ends its request when the clone has transferred all bytes, and again with no bytes left:
            // https://github.com/torvalds/linux/blob/v6.12/drivers/md/dm-rq.c#L76
            // An empty flush and a flush sequence also end with no bytes left, but they still have their bio.
            return Meaning::Duplicate;
        }
        Meaning::End
    }

    /// Whether this completion carries the status of its request. If a step of a flush sequence fails, the sequence ends there,
    /// and the request reports the error when it ends.
    #[inline(always)]
    pub(crate) fn reports_status(self, flags: u32, op: u32) -> bool {
        self.is_flush(op) || !self.is_in_flush_sequence(flags)
    }

    #[inline(always)]
    pub(crate) fn is_passthrough(self, op: u32) -> bool {
        op >= self.op_passthrough
    }

    #[inline(always)]
    fn is_flush(self, op: u32) -> bool {
        op == self.op_flush
    }

    #[inline(always)]
    pub(crate) fn is_in_flush_sequence(self, flags: u32) -> bool {
        flags & self.flush_sequence != 0
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Accounting,
        Meaning::{Duplicate, End, NotAccounted, Part},
    };

    const SEQ: u32 = 1 << 1;
    const STAT: u32 = 1 << 8;
    const OTHER: u32 = 1 << 2 | 1 << 13;
    const LINUX_6_12: Accounting =
        Accounting { flush_sequence: SEQ, io_stat: STAT, op_flush: 2, op_passthrough: 34 };
    const READ: u32 = 0;
    const WRITE: u32 = 1;
    const FLUSH: u32 = 2;
    const DISCARD: u32 = 3;
    const DRV_IN: u32 = 34;

    #[test]
    fn completions() {
        for (case, flags, op, bytes, remaining, has_bio, expected) in [
            ("a whole read", STAT | OTHER, READ, 4096, 4096, true, End),
            ("a part of a write", STAT, WRITE, 512, 4096, true, Part),
            ("the last part of a write", STAT, WRITE, 3584, 3584, true, End),
            ("more bytes than remain", STAT, READ, 8192, 4096, true, End),
            ("a discard", STAT, DISCARD, 1 << 20, 1 << 20, true, End),
            ("iostats off", OTHER, READ, 4096, 4096, true, NotAccounted),
            ("a part with iostats off", 0, READ, 512, 4096, true, NotAccounted),
            ("no statistics, in a flush sequence", SEQ, WRITE, 4096, 4096, true, NotAccounted),
            ("the data of a flush sequence", STAT | SEQ, WRITE, 4096, 4096, true, Part),
            ("the end of a flush sequence", STAT, WRITE, 0, 0, true, End),
            ("the flush request", STAT | SEQ, FLUSH, 0, 0, false, End),
            ("the flush request with iostats off", SEQ, FLUSH, 0, 0, false, End),
            ("an empty flush", STAT, FLUSH, 0, 0, true, End),
            ("dm's request, when the clone has ended", STAT, READ, 4096, 4096, true, End),
            ("dm's request, once more", STAT, READ, 0, 0, false, Duplicate),
            ("passthrough without data", STAT, DRV_IN, 0, 0, false, End),
            ("passthrough with data", STAT, DRV_IN, 512, 512, false, End),
            ("passthrough without statistics", 0, DRV_IN, 512, 512, true, NotAccounted),
        ] {
            assert_eq!(LINUX_6_12.meaning(flags, op, bytes, remaining, has_bio), expected, "{case}");
        }
    }

    #[test]
    fn a_step_of_a_flush_sequence_reports_no_status() {
        for (case, flags, op, expected) in [
            ("a read", STAT, READ, true),
            ("the data of a flush sequence", STAT | SEQ, WRITE, false),
            ("the end of a flush sequence", STAT, WRITE, true),
            ("the flush request", STAT | SEQ, FLUSH, true),
        ] {
            assert_eq!(LINUX_6_12.reports_status(flags, op), expected, "{case}");
        }
    }

    #[test]
    fn passthrough_begins_at_the_lowest_op() {
        assert!(!LINUX_6_12.is_passthrough(33) && LINUX_6_12.is_passthrough(34));
    }
}
