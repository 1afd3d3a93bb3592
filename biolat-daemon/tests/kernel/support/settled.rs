//! Books and figures of the same moment, and what came between two such.

use super::{
    daemon::Daemon,
    diskstats::{Fields, GROUPS, Stat},
    figures::Figures,
};

/// A device's books and the daemon's figures, with no completion between the two readings.
pub(crate) struct Moment {
    pub(crate) diskstats: Stat,
    pub(crate) figures: Figures,
}

/// Such a moment of a device.
pub(crate) fn settled(daemon: &Daemon, device: &str) -> Moment {
    for _ in 0..40 {
        let diskstats = Stat::of(device);
        let figures = daemon.fresh();
        if Stat::of(device) == diskstats {
            return Moment { diskstats, figures };
        }
    }
    panic!("{device} does not come to rest");
}

/// What came between two such moments.
pub(crate) struct Growth<'a> {
    device: &'a str,
    before: &'a Figures,
    after: &'a Figures,
    /// By how much the books grew, by group.
    pub(crate) completions: [u64; 4],
    /// How much of that the probe was not run for, as the audit found.
    pub(crate) unseen: u64,
    /// How much of that is in no histogram for a reason that is counted.
    pub(crate) missing: u64,
}

impl Growth<'_> {
    pub(crate) fn of(&self, group: Fields) -> u64 {
        self.completions[GROUPS.iter().position(|found| *found == group).unwrap()]
    }

    pub(crate) fn latencies(&self, phase: &str, op: &str) -> u64 {
        self.by(|figures| figures.latencies(phase, self.device, op))
    }

    pub(crate) fn seconds(&self, phase: &str, op: &str) -> f64 {
        self.after.seconds(phase, self.device, op) - self.before.seconds(phase, self.device, op)
    }

    pub(crate) fn bytes(&self, group: Fields) -> u64 {
        self.by(|figures| figures.bytes(self.device, group))
    }

    pub(crate) fn lost(&self, reason: &str) -> u64 {
        self.by(|figures| figures.lost(reason))
    }

    fn by(&self, figure: impl Fn(&Figures) -> u64) -> u64 {
        figure(self.after) - figure(self.before)
    }
}

/// Holds what came between two settled moments against the books: every completion is counted or unseen, every
/// byte is there, nothing is lost.
pub(crate) fn compare<'a>(device: &'a str, before: &'a Moment, after: &'a Moment) -> Growth<'a> {
    let growth = tally(device, before, after);
    assert_eq!(growth.missing, 0, "{device}: books = counted + unseen");
    assert_eq!(lost_here(&after.figures), lost_here(&before.figures), "losses");
    growth
}

/// The same where completions may be lost: no more are missing than are lost.
pub(crate) fn tally<'a>(device: &'a str, before: &'a Moment, after: &'a Moment) -> Growth<'a> {
    let mut growth = Growth {
        device,
        before: &before.figures,
        after: &after.figures,
        completions: GROUPS
            .map(|group| after.diskstats.completions(group) - before.diskstats.completions(group)),
        unseen: after.figures.unseen(device) - before.figures.unseen(device),
        missing: 0,
    };
    for (group, booked) in GROUPS.into_iter().zip(growth.completions) {
        let counted = growth.by(|figures| figures.count(device, group));
        let seen = counted + growth.by(|figures| figures.unseen_of(device, group));
        assert!(seen <= booked, "{device} {}: {seen} counted or unseen, {booked} booked", group.name);
        growth.missing += booked - seen;
        if let (Some(before), Some(now)) = (before.diskstats.bytes(group), after.diskstats.bytes(group))
            && counted == booked
        {
            assert_eq!(growth.bytes(group), now - before, "{device}: bytes of {}", group.name);
        }
    }
    let lost = growth.by(|figures| lost_here(figures).iter().map(|(_, count)| count).sum());
    assert!(growth.missing <= lost, "{device}: {} are missing, {lost} are lost", growth.missing);
    growth
}

/// Losses that a device of the tests may have a part in, by reason.
fn lost_here(figures: &Figures) -> Vec<(&'static str, u64)> {
    const REASONS: [&str; 5] = ["iostats_off", "no_room", "clock", "recursion", "unknown_device"];
    REASONS.into_iter().map(|reason| (reason, figures.lost(reason))).collect()
}
