//! Counts completions that are missing from the histograms, by reason.

use std::collections::BTreeMap;

use biolat_common::lost::Counts;
use biolat_model::{
    losses::{CountedBy, LOSS_REASONS, LossReason},
    name::Name,
};

use super::refusals::Refusals;

pub(super) struct Losses {
    /// By reason, including reasons with a count of 0.
    pub(super) by_reason: BTreeMap<Name, u64>,
    /// Losses that the disk statistics include, over all devices.
    pub(super) accounted: u64,
}

impl Losses {
    /// Computes the losses from the probe's counts, the completions for which the kernel refused to run it, and the completions
    /// of devices that no scan found.
    pub(super) fn new(counts: &Counts, refused: u64, refusals: &mut Refusals, unresolved: u64) -> Self {
        let possibly_lost = refusals.read(refused, counts);
        let (mut by_reason, mut accounted) = (BTreeMap::new(), 0);
        for LossReason { name, counted_by, .. } in LOSS_REASONS {
            let count = match counted_by {
                CountedBy::Probe(reason) => counts[*reason as usize],
                CountedBy::Kernel => refusals.lost(),
                CountedBy::Collector => unresolved,
            };
            by_reason.insert(Name::Borrowed(name), count);
            accounted += if counted_by.is_accounted() { count } else { 0 };
        }
        accounted += possibly_lost - refusals.lost();
        Self { by_reason, accounted }
    }
}
