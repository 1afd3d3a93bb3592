//! Workloads whose cgroup is gone: how long they are shown, and the room that they take in the probe's records.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use biolat_model::snapshot::WorkloadRoom;

use super::{Cgroups, Workload, WorkloadStore};

/// Time for which a cgroup that is gone is shown, if it has been scraped since.
pub(super) const SHOWN_AFTER_END: Duration = Duration::from_secs(5 * 60);

/// Time for which a cgroup that is gone is shown if it has not been scraped since, although there were scrapes before.
pub(super) const SHOWN_WITHOUT_SCRAPE: Duration = Duration::from_secs(60 * 60);

/// Workloads that are gone are ended early to keep a quarter of the room free for new ones.
const RESERVE: usize = 4;

/// Time when a workload was found to be gone.
#[derive(Clone, Copy)]
pub(super) struct Gone {
    pub(super) since: Instant,
    /// Number of scrapes before that.
    pub(super) scrapes: u64,
}

impl Gone {
    /// Whether its last counts have been shown for long enough.
    fn may_end(self, now: Instant, scrapes: u64) -> bool {
        let is_scraped = scrapes == 0 || scrapes > self.scrapes;
        now.duration_since(self.since) >= if is_scraped { SHOWN_AFTER_END } else { SHOWN_WITHOUT_SCRAPE }
    }
}

impl WorkloadStore {
    /// Finds workloads whose cgroup is gone, and ends those that have been gone for some time or whose room is needed.
    pub(super) fn end_gone(
        &mut self,
        active: &BTreeSet<u64>,
        now: Instant,
        scrapes: u64,
        cgroups: &mut impl Cgroups,
    ) {
        // After an error, the record stays until the next time.
        self.aliases.retain(|number, alias| {
            active.contains(number)
                || !matches!(cgroups.exists(*number, &alias.cgroup), Ok(false))
                || cgroups.forget(*number).is_err()
        });
        let has_alias: BTreeSet<_> = self.aliases.values().map(|alias| alias.workload).collect();
        let mut due = Vec::new();
        for (&number, workload) in &mut self.workloads {
            let Some(cgroup) = &workload.cgroup else { continue };
            if active.contains(&number) || has_alias.contains(&number) {
                continue;
            }
            match workload.gone {
                None if matches!(cgroups.exists(number, cgroup), Ok(false)) => {
                    workload.encoded.forget();
                    workload.gone = Some(Gone { since: now, scrapes });
                }
                Some(gone) if gone.may_end(now, scrapes) => due.push(number),
                _ => {}
            }
        }
        for number in due {
            self.end(number, cgroups);
        }
        self.make_room(cgroups);
    }

    /// Ends the workloads that have been gone longest until there is room for new ones.
    fn make_room(&mut self, cgroups: &mut impl Cgroups) {
        let room = cgroups.room();
        let missing = (self.places_used() + room / RESERVE).saturating_sub(room);
        if missing == 0 {
            return;
        }
        let gone =
            self.workloads.iter().filter_map(|(&number, workload)| Some((workload.gone?.since, number)));
        let mut gone: Vec<_> = gone.collect();
        gone.sort_unstable();
        for (_, number) in gone.into_iter().take(missing) {
            self.end(number, cgroups);
        }
    }

    /// Ends a workload. After an error, it stays along with its record.
    fn end(&mut self, number: u64, cgroups: &mut impl Cgroups) {
        if cgroups.forget(number).is_err() {
            return;
        }
        for (key, totals) in self.workloads.remove(&number).into_iter().flat_map(|workload| workload.usage) {
            *self.ended.entry(key).or_default() += totals.ios();
        }
    }

    pub(in crate::collector) fn room(&self, places: usize) -> WorkloadRoom {
        let (places, used) = (places as u64, self.places_used() as u64);
        WorkloadRoom { places, used, refused_ios: self.without_room }
    }

    /// Returns the number of cgroups that the probe has recorded.
    pub(super) fn places_used(&self) -> usize {
        let recorded = |workload: &&Workload| workload.cgroup.is_some();
        self.workloads.values().filter(recorded).count()
            + self.aliases.len()
            + usize::from(self.root.is_some())
    }
}
