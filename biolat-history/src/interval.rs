//! One interval: its times by both clocks, and its blocks.

use std::{sync::Arc, time::Duration};

/// Memory of a block in addition to its bytes: reference counts and allocator overhead.
const BLOCK_OVERHEAD: usize = 32;

/// Minimum deviation of the wall clock from the monotonic clock that counts as a jump, in microseconds.
const CLOCK_JUMP_US: u64 = 1_000_000;

/// The I/O between two collections, or the sum of several such intervals.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    /// Start by the monotonic clock, which keeps running while the machine is suspended.
    pub(super) began: Duration,
    pub(super) ended: Duration,
    /// End by the wall clock at the time, in microseconds since the epoch.
    pub(super) ended_us: u64,
    pub(super) block: Arc<[u8]>,
    /// Sizes and workloads. `None` if neither is counted, or if they were dropped.
    pub(super) breakdown: Option<Arc<[u8]>>,
}

impl Interval {
    pub(super) fn length(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }

    /// Start, by the wall clock as it was set at the end.
    pub(super) fn began_us(&self) -> u64 {
        self.ended_us.saturating_sub(self.length().as_micros() as u64)
    }

    /// Memory of the interval.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + BLOCK_OVERHEAD + self.block.len() + self.breakdown_bytes()
    }

    pub(super) fn breakdown_bytes(&self) -> usize {
        self.breakdown.as_ref().map_or(0, |breakdown| BLOCK_OVERHEAD + breakdown.len())
    }

    /// Whether `next`, the interval after this one, belongs in the same coarser interval, which begins with `first`.
    pub(super) fn continues(&self, first: &Self, next: &Self, width: Duration) -> bool {
        let slot = |interval: &Self| interval.began_us() / width.as_micros() as u64;
        slot(first) == slot(next)
            && next.began_us().abs_diff(self.ended_us) < CLOCK_JUMP_US
            && next.ended.saturating_sub(first.began) <= 2 * width
    }
}
