//! Audits one device: finds completions in the disk statistics that the probe missed.
//!
//! The probe runs before the kernel accounts a completion, so counters read *after* the disk statistics include everything in
//! them, and any excess in the disk statistics is completions that the probe missed. The largest excess so far is a lower bound
//! on the misses, exact when the device is quiet.

use biolat_model::device::Group;

use super::state::{numbers::array, record::AuditRecord};
use crate::device::diskstats::DiskStats;

/// The ongoing audit of a device.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    /// Excess of the disk statistics over the counters when the audit was opened. At first it includes completions between the
    /// two readings, and hides that many misses; see [`Audit::tighten`].
    initial_excess: [i128; 4],
    /// Known losses before the audit, on any device.
    initial_losses: u64,
    missed: [u64; 4],
}

impl Audit {
    /// Opens an audit with counters read *before* the disk statistics, so a completion in between never looks missed.
    pub(super) fn open(counted: &DiskStats, diskstats: &DiskStats, losses: u64) -> Self {
        Self {
            initial_excess: Group::ALL.map(|group| excess(diskstats, counted, group)),
            initial_losses: losses,
            missed: [0; 4],
        }
    }

    /// Compares disk statistics with counters read after them. `losses` counts accounted completions that were lost for a known
    /// reason, on any device.
    pub(super) fn check(&mut self, diskstats: &DiskStats, counted: &DiskStats, losses: u64) {
        let excesses = Group::ALL.map(|group| {
            let excess = excess(diskstats, counted, group) - self.initial_excess[group as usize];
            u64::try_from(excess).unwrap_or(0)
        });
        // A loss explains one completion in a single group (any group), not one in every group.
        let known = losses.saturating_sub(self.initial_losses) + self.missed.iter().sum::<u64>();
        let mut unexplained = excesses.iter().sum::<u64>().saturating_sub(known);
        for (missed, excess) in self.missed.iter_mut().zip(excesses) {
            let more = excess.saturating_sub(*missed).min(unexplained);
            *missed += more;
            unexplained -= more;
        }
    }

    /// Lowers the initial excess to the current one, which it cannot have exceeded. The counters were again read before the disk
    /// statistics.
    pub(super) fn tighten(&mut self, counted: &DiskStats, diskstats: &DiskStats) {
        for group in Group::ALL {
            let initial = &mut self.initial_excess[group as usize];
            *initial = excess(diskstats, counted, group).min(*initial);
        }
    }

    /// Returns the audit's record for the next daemon.
    pub(super) fn to_record(&self) -> AuditRecord {
        let Self { initial_excess, initial_losses, missed } = self;
        AuditRecord {
            initial_excess: initial_excess.iter().map(|&excess| clamp(excess)).collect(),
            initial_losses: *initial_losses,
            missed: missed.to_vec(),
        }
    }

    /// Restores an audit; `None` if the record is invalid.
    pub(super) fn from_record(record: &AuditRecord) -> Option<Self> {
        let initial_excess: [i64; 4] = array(&record.initial_excess)?;
        Some(Self {
            initial_excess: initial_excess.map(i128::from),
            initial_losses: record.initial_losses,
            missed: array(&record.missed)?,
        })
    }

    /// Returns the completions that the probe missed, by group; without flushes if the disk statistics do not include them.
    pub(super) fn missed(&self, has_flushes: bool) -> Vec<(Group, u64)> {
        let groups = Group::ALL.into_iter().filter(|group| has_flushes || *group != Group::Flush);
        groups.map(|group| (group, self.missed[group as usize])).collect()
    }
}

/// Clamps an excess to 64 bits, which no count of completions exceeds.
fn clamp(excess: i128) -> i64 {
    i64::try_from(excess).unwrap_or(if excess < 0 { i64::MIN } else { i64::MAX })
}

fn excess(diskstats: &DiskStats, counted: &DiskStats, group: Group) -> i128 {
    i128::from(diskstats[group]) - i128::from(counted[group])
}

#[cfg(test)]
mod tests {
    use biolat_model::device::Group;

    use super::Audit;
    use crate::device::diskstats::DiskStats;

    #[test]
    fn counts_excess_of_disk_statistics_as_missed() {
        let mut audit = Audit::open(&DiskStats::new([5, 0, 0, 0]), &DiskStats::new([105, 7, 0, 0]), 0);
        audit.check(&DiskStats::new([205, 7, 0, 0]), &DiskStats::new([105, 0, 0, 0]), 0);
        assert_eq!(audit.missed(true)[0], (Group::Read, 0));
        // Completions that are counted but not accounted yet hide misses only until they are accounted.
        audit.check(&DiskStats::new([300, 8, 0, 0]), &DiskStats::new([240, 0, 0, 0]), 0);
        assert_eq!(
            audit.missed(true),
            [(Group::Read, 0), (Group::Write, 1), (Group::Discard, 0), (Group::Flush, 0)]
        );
        audit.check(&DiskStats::new([350, 8, 0, 0]), &DiskStats::new([240, 0, 0, 0]), 0);
        assert_eq!(audit.missed(true)[0], (Group::Read, 10));
        // The number of misses never shrinks.
        audit.check(&DiskStats::new([350, 8, 0, 0]), &DiskStats::new([260, 9, 0, 0]), 0);
        assert_eq!(audit.missed(true)[..2], [(Group::Read, 10), (Group::Write, 1)]);
    }

    #[test]
    fn tightening_reveals_misses_hidden_at_opening() {
        // 50 completed between the two reads.
        let mut audit = Audit::open(&DiskStats::new([0; 4]), &DiskStats::new([150, 0, 0, 0]), 0);
        audit.tighten(&DiskStats::new([70, 0, 0, 0]), &DiskStats::new([172, 0, 0, 0]));
        audit.tighten(&DiskStats::new([100, 0, 0, 0]), &DiskStats::new([200, 0, 0, 0]));
        audit.check(&DiskStats::new([230, 0, 0, 0]), &DiskStats::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.missed(true)[0], (Group::Read, 0));
        audit.check(&DiskStats::new([240, 0, 0, 0]), &DiskStats::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.missed(true)[0], (Group::Read, 10));
        // A later, larger excess says nothing about the initial one.
        audit.tighten(&DiskStats::new([130, 0, 0, 0]), &DiskStats::new([240, 0, 0, 0]));
        audit.check(&DiskStats::new([241, 0, 0, 0]), &DiskStats::new([130, 0, 0, 0]), 0);
        assert_eq!(audit.missed(true)[0], (Group::Read, 11));
    }

    #[test]
    fn record_round_trips() {
        let mut audit = Audit::open(&DiskStats::new([5, 7, 0, 0]), &DiskStats::new([2, 9, 1, 0]), 3);
        audit.check(&DiskStats::new([20, 9, 1, 0]), &DiskStats::new([15, 7, 0, 0]), 4);
        let kept = Audit::from_record(&audit.to_record()).unwrap();
        assert_eq!(format!("{kept:?}"), format!("{audit:?}"));
        assert!(Audit::from_record(&Default::default()).is_none());
    }

    #[test]
    fn flushes_outside_of_the_disk_statistics_are_not_audited() {
        let mut audit = Audit::open(&DiskStats::new([0, 0, 0, 3]), &DiskStats::new([0; 4]), 0);
        audit.check(&DiskStats::new([9, 5, 0, 0]), &DiskStats::new([9, 4, 0, 8]), 0);
        assert_eq!(audit.missed(false), [(Group::Read, 0), (Group::Write, 1), (Group::Discard, 0)]);
    }

    #[test]
    fn known_loss_is_not_missed() {
        let mut audit = Audit::open(&DiskStats::new([0; 4]), &DiskStats::new([0; 4]), 3);
        audit.check(&DiskStats::new([10, 0, 0, 0]), &DiskStats::new([6, 0, 0, 0]), 7);
        assert_eq!(audit.missed(true)[0], (Group::Read, 0));
        audit.check(&DiskStats::new([11, 0, 0, 0]), &DiskStats::new([6, 0, 0, 0]), 7);
        assert_eq!(audit.missed(true)[0], (Group::Read, 1));
    }

    #[test]
    fn loss_explains_one_completion_in_one_group() {
        let missed =
            |audit: &Audit| audit.missed(true).into_iter().map(|(_, count)| count).collect::<Vec<_>>();
        let mut audit = Audit::open(&DiskStats::new([0; 4]), &DiskStats::new([0; 4]), 0);
        audit.check(&DiskStats::new([9, 8, 0, 0]), &DiskStats::new([4, 5, 0, 0]), 1);
        assert_eq!(missed(&audit), [5, 2, 0, 0]);
        // Completions found to be missed stay missed, and later losses are not counted as missed.
        audit.check(&DiskStats::new([9, 9, 1, 0]), &DiskStats::new([4, 5, 0, 0]), 3);
        assert_eq!(missed(&audit), [5, 2, 0, 0]);
        audit.check(&DiskStats::new([9, 9, 2, 0]), &DiskStats::new([4, 5, 0, 0]), 3);
        assert_eq!(missed(&audit), [5, 3, 0, 0]);
    }
}
