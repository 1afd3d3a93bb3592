//! The hash function of the tables that the probe searches.

/// Spreads similar numbers over the whole range. The high bits are the best mixed.
#[inline(always)]
pub(crate) const fn spread(number: u64) -> u64 {
    /// 2^64 divided by the golden ratio.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    number.wrapping_mul(SPREAD)
}
