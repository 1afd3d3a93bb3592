//! Disk statistics and metrics of the same moment, and the growth between two such moments.

use std::collections::BTreeMap;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::Histogram;

use super::{
    daemon::Daemon,
    diskstats::{Fields, GROUPS, Stat},
    figures::Figures,
};

/// A device's disk statistics and the daemon's metrics, without a completion between the two reads.
pub(crate) struct Moment {
    pub(crate) diskstats: Stat,
    pub(crate) figures: Figures,
}

/// Waits for such a moment.
pub(crate) fn settled(daemon: &Daemon, device: &str) -> Moment {
    for _ in 0..40 {
        let diskstats = Stat::of(device);
        let figures = daemon.fresh();
        if Stat::of(device) == diskstats {
            return Moment { diskstats, figures };
        }
    }
    panic!("{device} is never quiet");
}

/// Growth between two such moments.
pub(crate) struct Growth<'a> {
    device: &'a str,
    before: &'a Figures,
    after: &'a Figures,
    /// Growth of the disk statistics, by group.
    pub(crate) completions: [u64; 4],
    /// Completions that the probe missed, by the audit.
    pub(crate) unseen: u64,
    /// Completions that are neither counted nor missed.
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

    /// Requests of an op by size: the exponent of the upper bound of a bucket in bytes, and its growth.
    pub(crate) fn sizes(&self, op: &str) -> BTreeMap<i32, u64> {
        let before = self.before.sizes(self.device, op);
        let grown = |(exponent, count)| (exponent, count - before.get(&exponent).unwrap_or(&0));
        self.after.sizes(self.device, op).into_iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }

    /// Requests of an op by band.
    pub(crate) fn bands(&self, op: &str) -> BTreeMap<&str, u64> {
        let before: BTreeMap<_, _> = self.before.bands(self.device, op).into_iter().collect();
        let grown = |(band, now): (_, &Histogram)| {
            (band, now.sample_count - before.get(band).map_or(0, |before| before.sample_count))
        };
        self.after.bands(self.device, op).into_iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }

    /// Of a counter of the device with these labels, too.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = [&[("device", self.device)], labels].concat();
        self.after.value(name, &labels) - self.before.value(name, &labels)
    }

    pub(crate) fn lost(&self, reason: &str) -> u64 {
        self.by(|figures| figures.lost(reason))
    }

    /// Fails if the probe missed more completions than it sometimes does, even though every CPU is kept awake: the kernel then
    /// did not run it. They are accounted for in any case, see [`compare`].
    pub(crate) fn assert_few_unseen(&self) {
        let all: u64 = self.completions.iter().sum();
        assert!(self.unseen * 200 <= all, "{}: {} of {all} unseen", self.device, self.unseen);
    }

    fn by(&self, figure: impl Fn(&Figures) -> u64) -> u64 {
        figure(self.after) - figure(self.before)
    }
}

/// Compares the growth with the disk statistics: every completion is counted or missed, every byte is counted, nothing is
/// lost.
pub(crate) fn compare<'a>(device: &'a str, before: &'a Moment, after: &'a Moment) -> Growth<'a> {
    let growth = tally(device, before, after);
    assert_eq!(lost_here(&after.figures), lost_here(&before.figures), "losses");
    assert_eq!(growth.missing, 0, "{device}: disk statistics = counted + missed");
    growth
}

/// The same where an interrupt of any disk may find the probe running on its CPU: the kernel does not run it for that completion,
/// and counts it as lost. If it is of another disk, it hides one that the probe missed.
pub(crate) fn compare_but_for_recursion<'a>(
    device: &'a str,
    before: &'a Moment,
    after: &'a Moment,
) -> Growth<'a> {
    let growth = tally(device, before, after);
    let others = |figures| lost_here(figures).into_iter().filter(|(reason, _)| *reason != "recursion");
    assert!(others(&after.figures).eq(others(&before.figures)), "losses: {:?}", lost_here(&after.figures));
    growth
}

/// The same where completions may be lost: no more are uncounted than are lost.
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
    for (group, accounted) in GROUPS.into_iter().zip(growth.completions) {
        let counted = growth.by(|figures| figures.count(device, group));
        let seen = counted + growth.by(|figures| figures.unseen_of(device, group));
        assert!(
            seen <= accounted,
            "{device} {}: {seen} counted or missed, {accounted} accounted",
            group.name
        );
        growth.missing += accounted - seen;
        if let (Some(before), Some(now)) = (before.diskstats.bytes(group), after.diskstats.bytes(group))
            && counted == accounted
        {
            // The disk statistics have no part of a sector, which only passthrough commands transfer.
            let passthrough: u64 = group.passthrough().map(|op| growth.latencies("total", op)).sum();
            let uncounted = (now - before).abs_diff(growth.bytes(group));
            assert!(uncounted <= 511 * passthrough, "{device}: {uncounted} bytes of {}", group.name);
        }
    }
    let lost = growth.by(|figures| lost_here(figures).iter().map(|(_, count)| count).sum());
    let reasons = lost_here(&after.figures);
    assert!(growth.missing <= lost, "{device}: {} are missing, {lost} are lost: {reasons:?}", growth.missing);
    growth
}

/// Losses that a test's device may contribute to, by reason.
fn lost_here(figures: &Figures) -> Vec<(&'static str, u64)> {
    const REASONS: [&str; 5] = ["iostats_off", "no_room", "clock", "recursion", "unknown_device"];
    REASONS.into_iter().map(|reason| (reason, figures.lost(reason))).collect()
}
