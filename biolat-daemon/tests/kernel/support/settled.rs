//! Disk statistics and metrics from the same moment, and the growth between two moments.

use std::collections::BTreeMap;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::Histogram;

use super::{
    daemon::Daemon,
    diskstats::{FLUSH, Fields, GROUPS, Stat},
    figures::Figures,
    kernel::{self, Ability},
};

/// A device's disk statistics and the daemon's metrics, with no completion between the two reads.
pub(crate) struct Moment {
    pub(crate) diskstats: Stat,
    pub(crate) figures: Figures,
}

/// Waits until the device is quiet, then returns its statistics and metrics.
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

/// Growth between two moments.
pub(crate) struct Growth<'a> {
    device: &'a str,
    before: &'a Figures,
    after: &'a Figures,
    /// Growth of the disk statistics, by group; of the daemon's counts for flushes that the kernel does not account.
    pub(crate) completions: [u64; 4],
    /// Completions missed by the probe, according to the audit.
    pub(crate) missed: u64,
    /// Completions that are neither counted nor missed.
    pub(crate) unaccounted: u64,
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

    /// Returns the growth of an op's size buckets, by the exponent of the bucket's upper bound in bytes.
    pub(crate) fn sizes(&self, op: &str) -> BTreeMap<i32, u64> {
        let before = self.before.sizes(self.device, op);
        let grown = |(exponent, count)| (exponent, count - before.get(&exponent).unwrap_or(&0));
        self.after.sizes(self.device, op).into_iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the growth of an op's requests by size band.
    pub(crate) fn bands(&self, op: &str) -> BTreeMap<&str, u64> {
        let before: BTreeMap<_, _> = self.before.bands(self.device, op).into_iter().collect();
        let grown = |(band, now): (_, &Histogram)| {
            (band, now.sample_count - before.get(band).map_or(0, |before| before.sample_count))
        };
        self.after.bands(self.device, op).into_iter().map(grown).filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the growth of a counter with these labels in addition to the device.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = [&[("device", self.device)], labels].concat();
        self.after.value(name, &labels) - self.before.value(name, &labels)
    }

    pub(crate) fn lost(&self, reason: &str) -> u64 {
        self.by(|figures| figures.lost(reason))
    }

    /// Asserts that the probe missed few completions. The kernel sometimes does not run the probe, even with every CPU kept
    /// awake. Missed completions are always accounted for: see [`compare`].
    pub(crate) fn assert_few_missed(&self) {
        let all: u64 = self.completions.iter().sum();
        assert!(self.missed * 200 <= all, "{}: {} of {all} missed", self.device, self.missed);
    }

    fn by(&self, figure: impl Fn(&Figures) -> u64) -> u64 {
        figure(self.after) - figure(self.before)
    }
}

/// Compares the growth with the disk statistics, and asserts that every completion is counted or missed, every byte is counted,
/// and nothing is lost.
pub(crate) fn compare<'a>(device: &'a str, before: &'a Moment, after: &'a Moment) -> Growth<'a> {
    let growth = tally(device, before, after);
    assert_eq!(device_losses(&after.figures), device_losses(&before.figures), "losses");
    assert_eq!(growth.unaccounted, 0, "{device}: disk statistics = counted + missed");
    growth
}

/// Like [`compare`], but allows losses due to recursion: if an interrupt from any disk arrives on a CPU that is already running
/// the probe, the kernel does not run it again, and the completion counts as lost. A loss on another disk can hide a completion
/// missed on this one.
pub(crate) fn compare_except_recursion<'a>(
    device: &'a str,
    before: &'a Moment,
    after: &'a Moment,
) -> Growth<'a> {
    let growth = tally(device, before, after);
    let others = |figures| device_losses(figures).into_iter().filter(|(reason, _)| *reason != "recursion");
    assert!(
        others(&after.figures).eq(others(&before.figures)),
        "losses: {:?}",
        device_losses(&after.figures)
    );
    growth
}

/// Like [`compare`], but allows losses: no more completions may be uncounted than are lost.
pub(crate) fn tally<'a>(device: &'a str, before: &'a Moment, after: &'a Moment) -> Growth<'a> {
    let mut growth = Growth {
        device,
        before: &before.figures,
        after: &after.figures,
        completions: [0; 4],
        missed: after.figures.missed(device) - before.figures.missed(device),
        unaccounted: 0,
    };
    for (place, group) in GROUPS.into_iter().enumerate() {
        let counted = growth.by(|figures| figures.count(device, group));
        let accounted = if after.diskstats.has(group) {
            after.diskstats.completions(group) - before.diskstats.completions(group)
        } else {
            assert!(group == FLUSH && !kernel::has(Ability::FlushStatistics), "{device} {}", group.name);
            counted
        };
        growth.completions[place] = accounted;
        let seen = counted + growth.by(|figures| figures.missed_of(device, group));
        assert!(
            seen <= accounted,
            "{device} {}: {seen} counted or missed, {accounted} accounted",
            group.name
        );
        growth.unaccounted += accounted - seen;
        if let (Some(before), Some(now)) = (before.diskstats.bytes(group), after.diskstats.bytes(group))
            && counted == accounted
        {
            // The disk statistics omit partial sectors, which only passthrough commands transfer.
            let passthrough: u64 = group.passthrough().map(|op| growth.latencies("total", op)).sum();
            let uncounted = (now - before).abs_diff(growth.bytes(group));
            assert!(uncounted <= 511 * passthrough, "{device}: {uncounted} bytes of {}", group.name);
        }
    }
    let lost = growth.by(|figures| device_losses(figures).iter().map(|(_, count)| count).sum());
    let reasons = device_losses(&after.figures);
    assert!(
        growth.unaccounted <= lost,
        "{device}: {} missing, but only {lost} lost: {reasons:?}",
        growth.unaccounted
    );
    growth
}

/// Returns, by reason, the losses that a test's device can contribute to.
fn device_losses(figures: &Figures) -> Vec<(&'static str, u64)> {
    const REASONS: [&str; 5] = ["iostats_off", "no_room", "clock", "recursion", "unknown_device"];
    REASONS.into_iter().map(|reason| (reason, figures.lost(reason))).collect()
}
