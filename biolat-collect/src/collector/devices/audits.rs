//! Audits each device, using the counts of its series.

use std::collections::BTreeMap;

use biolat_model::device::Group;
use biolat_probe::{abilities::Ability, kernel::Kernel};

use super::{
    super::{audit::Audit, series_store::SeriesStore},
    Devices,
};
use crate::device::diskstats::DiskStats;

impl Devices {
    /// Audits each device. `diskstats` were read before the counters. If they are unchanged after the counters were read, the
    /// device was quiet, and the audit's baseline is exact. `losses` is the number of losses that the disk statistics include.
    pub(in crate::collector) fn audit(
        &mut self,
        diskstats: &BTreeMap<u64, DiskStats>,
        store: &SeriesStore,
        kernel: &Kernel,
        losses: u64,
    ) {
        let counted = self.counted(store, kernel);
        for (id, known) in &mut self.known {
            if known.device.has_clones || !known.shown {
                continue;
            }
            let counted = counted.get(id).copied().unwrap_or_default();
            let before = diskstats.get(id);
            if !known.was_quiet {
                let Ok(after) = DiskStats::read(&self.host.sysfs, &known.device) else { continue };
                match &mut known.audit {
                    Some(audit) => audit.tighten(&counted, &after),
                    None => known.audit = Some(Audit::open(&counted, &after, losses)),
                }
                known.was_quiet = before.is_some_and(|before| before.has_same_completions(&after));
            }
            if let (Some(audit), Some(before)) = (&mut known.audit, before) {
                audit.check(before, &counted, losses);
            }
        }
    }

    /// Returns the probe's counts, in the groups of the disk statistics.
    fn counted(&self, store: &SeriesStore, kernel: &Kernel) -> BTreeMap<u64, DiskStats> {
        let mut counted: BTreeMap<u64, DiskStats> = BTreeMap::new();
        for (key, totals) in store.iter() {
            let accounts_passthrough = kernel.has(Ability::PassthroughStatistics)
                || self.get(key.device()).is_some_and(|known| known.device.accounts_passthrough);
            if let Some(group) = Group::of(key.op(), &kernel.op_name(key.op()), accounts_passthrough) {
                counted.entry(key.device()).or_default().add(group, totals.count());
            }
        }
        counted
    }
}
