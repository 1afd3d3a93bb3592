//! One interval: its times by both clocks, and its block.

use std::{sync::Arc, time::Duration};

/// Memory of a block besides its bytes: its counts of owners, and the heap's own.
const BLOCK_OVERHEAD: usize = 32;

/// The wall clock has been set if it shows another time than the monotonic one by so many microseconds.
const CLOCK_JUMP_US: u64 = 1_000_000;

/// What came between two collections, or in several such intervals together.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    /// By the monotonic clock, which goes on while the machine is suspended.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    /// By the wall clock as it was set then, in microseconds since the epoch.
    pub(super) ended_us: u64,
    pub(super) block: Arc<[u8]>,
    /// Sizes and workloads; none if neither is counted, or they were dropped.
    pub(super) breakdown: Option<Arc<[u8]>>,
}

impl Interval {
    pub(super) fn length(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }

    /// When it began, by the wall clock as it was set when it ended.
    pub(super) fn began_us(&self) -> u64 {
        self.ended_us.saturating_sub(self.length().as_micros() as u64)
    }

    /// Its memory.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + BLOCK_OVERHEAD + self.block.len() + self.breakdown_bytes()
    }

    pub(super) fn breakdown_bytes(&self) -> usize {
        self.breakdown.as_ref().map_or(0, |breakdown| BLOCK_OVERHEAD + breakdown.len())
    }

    /// Whether `next`, which follows it, belongs to the same interval of a coarser tier that begins with `first`.
    pub(super) fn continues(&self, first: &Self, next: &Self, width: Duration) -> bool {
        let slot = |interval: &Self| interval.began_us() / width.as_micros() as u64;
        slot(first) == slot(next)
            && next.began_us().abs_diff(self.ended_us) < CLOCK_JUMP_US
            && next.ended.saturating_sub(first.began) <= 2 * width
    }
}
