//! Decides from the verdicts of the last few hours whether a drive or node is sick, like the alert expressions.

use super::judge::{KINDS, Verdict};

/// Number of evaluations, and the minimum number in which a drive is slow.
#[derive(Clone, Copy)]
struct Share {
    of: u32,
    least: u32,
}

const FOUR_FIFTHS_OF_AN_HOUR: Share = Share { of: 15, least: 12 };
const A_FIFTH_OF_SIX_HOURS: Share = Share { of: 90, least: 18 };

/// The latest evaluations, with the newest in the lowest bit.
#[derive(Clone, Copy, Default)]
struct Bits(u128);

impl Bits {
    fn add(&mut self, is_slow: bool) {
        self.0 = self.0 << 1 | u128::from(is_slow);
    }

    const fn is(self, Share { of, least }: Share) -> bool {
        (self.0 & ((1 << of) - 1)).count_ones() >= least
    }
}

#[derive(Clone, Default)]
pub(crate) struct PastDriveVerdicts {
    slow: Bits,
    stalled: Bits,
    kinds: [Bits; KINDS],
}

impl PastDriveVerdicts {
    pub(crate) fn add(&mut self, verdict: &Verdict) {
        self.slow.add(verdict.is_slow);
        self.stalled.add(verdict.is_stalled);
        for (kind, bits) in self.kinds.iter_mut().enumerate() {
            bits.add(verdict.slow_kinds & 1 << kind != 0);
        }
    }

    pub(crate) fn is_sick(&self) -> bool {
        self.slow.is(FOUR_FIFTHS_OF_AN_HOUR)
            || self.stalled.is(A_FIFTH_OF_SIX_HOURS)
            || self.kinds.iter().any(|kind| kind.is(FOUR_FIFTHS_OF_AN_HOUR))
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct PastNodeVerdicts(Bits);

impl PastNodeVerdicts {
    pub(crate) fn add(&mut self, is_slow: bool) {
        self.0.add(is_slow);
    }

    pub(crate) const fn is_sick(self) -> bool {
        self.0.is(FOUR_FIFTHS_OF_AN_HOUR)
    }
}
