//! Measures how well alerts find sick drives, by comparing fired alerts with injected events.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use serde::Serialize;

use super::{alerts::Episode, remote_write::Labels};

/// How long after the end of a fault an alarm still counts as finding it, in milliseconds.
const GRACE: i64 = 3_600_000;
const WEEK: f64 = 7.0 * 86_400_000.0;

/// Labels that select drives. An alert that lacks any of them is about all drives that match its other labels.
const SCOPE: [&str; 5] = ["cluster", "instance", "device", "model", "firmware"];

/// An injected event, with the indices of the drives, and times in milliseconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    pub(crate) kind: String,
    pub(crate) is_fault: bool,
    pub(crate) drives: BTreeSet<usize>,
    pub(crate) from: i64,
    pub(crate) to: i64,
}

/// An alarm: an alert that fires for some drives, regardless of the number of ops and sizes.
#[derive(Debug)]
struct Alarm {
    drives: BTreeSet<usize>,
    from: i64,
    to: i64,
}

impl Alarm {
    /// Whether it is about a drive of this event, during the event or shortly after.
    fn matches(&self, truth: &Truth) -> bool {
        self.overlaps(truth) && !self.drives.is_disjoint(&truth.drives)
    }

    fn overlaps(&self, truth: &Truth) -> bool {
        self.from < truth.to + GRACE && self.to > truth.from
    }
}

/// Findings of one alert.
#[derive(Debug, Serialize)]
pub(crate) struct Score {
    pub(crate) alert: String,
    /// Faults by kind.
    pub(crate) faults: BTreeMap<String, Found>,
    pub(crate) alarms: usize,
    pub(crate) false_alarms: usize,
    /// False alarms by the kind of innocent event at that time; `none` without one.
    pub(crate) false_alarms_by_kind: BTreeMap<String, usize>,
    pub(crate) false_alarms_per_thousand_drives_and_week: f64,
    pub(crate) mistakes: Vec<Mistake>,
}

/// A missed fault or a false alarm.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Mistake {
    /// Kind of the missed fault, or `None` for a false alarm.
    pub(crate) missed: Option<String>,
    /// First of the drives.
    pub(crate) drive: String,
    /// Number of drives.
    pub(crate) drives: usize,
    /// Start, in hours since the beginning.
    pub(crate) hours: f64,
    /// Duration.
    pub(crate) minutes: f64,
}

impl Mistake {
    fn new(
        missed: Option<String>,
        of: &BTreeSet<usize>,
        [from, to]: [i64; 2],
        drives: &[Labels],
        start: i64,
    ) -> Self {
        let name = |drive: &usize| {
            let labels = ["cluster", "instance", "device", "model"].map(|label| drives[*drive].get(label));
            labels.into_iter().flatten().cloned().collect::<Vec<_>>().join(" ")
        };
        Self {
            missed,
            drive: of.first().map(name).unwrap_or_default(),
            drives: of.len(),
            hours: (from - start) as f64 / 3_600_000.0,
            minutes: (to - from) as f64 / 60_000.0,
        }
    }
}

/// Faults of one kind.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(crate) struct Found {
    pub(crate) faults: usize,
    /// Faults with an alarm for at least one of their drives.
    pub(crate) found: usize,
    /// Number of drives affected by all faults.
    pub(crate) drives: usize,
    pub(crate) found_drives: usize,
    /// Median delay of the faults that were found.
    pub(crate) median_minutes: Option<f64>,
}

impl Found {
    pub(crate) fn recall(&self) -> f64 {
        self.found as f64 / self.faults as f64
    }
}

impl Score {
    /// Compares the episodes of an alert with the ground truth for these drives during this time.
    pub(crate) fn new(
        alert: &str,
        episodes: &[Episode],
        truth: &[Truth],
        drives: &[Labels],
        during: Range<i64>,
    ) -> Self {
        let alarms = alarms(episodes, drives);
        let (faults, innocent): (Vec<_>, Vec<_>) = truth.iter().partition(|truth| truth.is_fault);
        let is_false = |alarm: &&Alarm| !faults.iter().any(|fault| alarm.matches(fault));
        let mut by_kind = BTreeMap::new();
        for alarm in alarms.iter().filter(is_false) {
            let kinds: BTreeSet<_> = innocent
                .iter()
                .filter(|event| alarm.matches(event))
                .map(|event| event.kind.clone())
                .collect();
            let kind = if kinds.is_empty() {
                "none".to_owned()
            } else {
                kinds.into_iter().collect::<Vec<_>>().join("+")
            };
            *by_kind.entry(kind).or_default() += 1;
        }
        let false_alarms: usize = by_kind.values().sum();
        let is_missed = |fault: &&&Truth| !alarms.iter().any(|alarm| alarm.matches(fault));
        let missed = faults.iter().filter(is_missed).map(|fault| {
            let Truth { kind, drives: of, from, to, .. } = fault;
            Mistake::new(Some(kind.clone()), of, [*from, *to], drives, during.start)
        });
        let wrong = alarms
            .iter()
            .filter(is_false)
            .map(|alarm| Mistake::new(None, &alarm.drives, [alarm.from, alarm.to], drives, during.start));
        let drive_weeks = drives.len() as f64 * (during.end - during.start) as f64 / WEEK;
        Self {
            alert: alert.to_owned(),
            faults: found(&faults, &alarms),
            alarms: alarms.len(),
            false_alarms,
            false_alarms_by_kind: by_kind,
            false_alarms_per_thousand_drives_and_week: false_alarms as f64 * 1000.0 / drive_weeks,
            mistakes: missed.chain(wrong).collect(),
        }
    }

    /// Returns the share of alarms that are about a sick drive, or `None` without alarms.
    pub(crate) fn precision(&self) -> Option<f64> {
        (self.alarms > 0).then(|| 1.0 - self.false_alarms as f64 / self.alarms as f64)
    }

    pub(crate) fn fault_count(&self) -> usize {
        self.faults.values().map(|found| found.faults).sum()
    }

    /// Returns the number of faults that were found.
    pub(crate) fn found_count(&self) -> usize {
        self.faults.values().map(|found| found.found).sum()
    }

    /// Returns the share of faults that were found, or `None` without faults.
    pub(crate) fn recall(&self) -> Option<f64> {
        let faults = self.fault_count();
        (faults > 0).then(|| self.found_count() as f64 / faults as f64)
    }
}

fn found(faults: &[&Truth], alarms: &[Alarm]) -> BTreeMap<String, Found> {
    let mut by_kind: BTreeMap<String, (Found, Vec<i64>)> = BTreeMap::new();
    for fault in faults {
        let (found, delays) = by_kind.entry(fault.kind.clone()).or_default();
        let of_it: Vec<_> = alarms.iter().filter(|alarm| alarm.matches(fault)).collect();
        found.faults += 1;
        found.drives += fault.drives.len();
        found.found_drives += fault
            .drives
            .iter()
            .filter(|drive| of_it.iter().any(|alarm| alarm.drives.contains(drive)))
            .count();
        if let Some(first) = of_it.iter().map(|alarm| alarm.from).min() {
            found.found += 1;
            delays.push((first - fault.from).max(0));
        }
    }
    let with_median = |(kind, (mut found, mut delays)): (String, (Found, Vec<i64>))| {
        delays.sort_unstable();
        found.median_minutes = delays.get(delays.len() / 2).map(|delay| *delay as f64 / 60_000.0);
        (kind, found)
    };
    by_kind.into_iter().map(with_median).collect()
}

/// Merges episodes for the same drives that overlap or immediately follow each other.
fn alarms(episodes: &[Episode], drives: &[Labels]) -> Vec<Alarm> {
    let mut by_scope: BTreeMap<Labels, Vec<(i64, i64)>> = BTreeMap::new();
    for Episode { labels, from, to } in episodes {
        let scope = labels.clone().into_iter().filter(|(name, _)| SCOPE.contains(&name.as_str())).collect();
        by_scope.entry(scope).or_default().push((*from, *to));
    }
    let mut alarms = Vec::new();
    for (scope, mut times) in by_scope {
        let is_in = |drive: &Labels| scope.iter().all(|(name, value)| drive.get(name) == Some(value));
        let in_scope: BTreeSet<_> =
            drives.iter().enumerate().filter(|(_, drive)| is_in(drive)).map(|(index, _)| index).collect();
        let mut of_scope: Vec<Alarm> = Vec::new();
        times.sort_unstable();
        for (from, to) in times {
            match of_scope.last_mut() {
                Some(last) if from <= last.to => last.to = to.max(last.to),
                _ => of_scope.push(Alarm { drives: in_scope.clone(), from, to }),
            }
        }
        alarms.extend(of_scope);
    }
    alarms
}
