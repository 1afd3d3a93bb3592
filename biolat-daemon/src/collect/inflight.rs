//! I/Os that have not completed: how many there are, and the age of the oldest one of each device.
//!
//! A hung device must be known in each collection, and a busy node must not pay for it. As no I/O can become older than the
//! oldest one, that one is looked up again first: while it is pending, its age is the answer. Otherwise all requests of
//! the device are looked at: at once if it has completed nothing since the last collection, else when it is its turn.

use std::{
    collections::BTreeMap,
    fs, io,
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;
use biolat_common::inflight::{Found, SLOTS_PER_RUN, Tags};

use super::Collector;
use crate::{
    device::{diskstats::DiskStats, sysfs},
    probe::Probe,
    snapshot::Inflight,
};

/// The part of the time that looking at busy devices may take: a half per cent of one CPU.
const SHARE: u32 = 200;

/// What is known of a device between two collections.
#[derive(Default)]
pub(super) struct InflightState {
    pub(super) latest: Inflight,
    /// Where the oldest request was found.
    oldest: Option<Pending>,
    /// Since when there have been I/Os in flight, and none has completed.
    stalled_since: Option<Instant>,
    diskstats: DiskStats,
}

/// A request that has not completed, and where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    place: Place,
    allocated_at: u64,
    age: Duration,
}

/// One run of the program: some slots of a hardware queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    hardware_queue: u32,
    tags: Tags,
    first: u32,
}

/// What a look at all requests of a device found.
#[derive(Default)]
struct Survey {
    oldest: Option<Pending>,
    requests: u32,
    untimed: u32,
}

impl Survey {
    fn add(&mut self, place: Place, found: &Found) {
        self.requests += found.requests;
        self.untimed += found.untimed;
        if let Some(pending) = pending(place, found)
            && self.oldest.is_none_or(|oldest| pending.allocated_at < oldest.allocated_at)
        {
            self.oldest = Some(pending);
        }
    }
}

fn pending(place: Place, found: &Found) -> Option<Pending> {
    let age = Duration::from_nanos(found.now.saturating_sub(found.oldest_allocated_at));
    (found.oldest_allocated_at != 0).then_some(Pending {
        place,
        allocated_at: found.oldest_allocated_at,
        age,
    })
}

/// Whose turn it is to be surveyed.
#[derive(Default)]
pub(super) struct SurveyTurns {
    /// The devices that were surveyed last: of those with I/Os in flight, of those without.
    busy: u64,
    idle: u64,
    budget: Budget,
}

/// Time for surveys. One that takes longer than what is left is paid for by later collections.
#[derive(Default)]
struct Budget {
    left: Duration,
    debt: Duration,
}

impl Budget {
    fn refill(&mut self, share: Duration) {
        self.left = share.saturating_sub(self.debt);
        self.debt = self.debt.saturating_sub(share);
    }

    fn is_left(&self) -> bool {
        !self.left.is_zero()
    }

    fn spend(&mut self, time: Duration) {
        self.debt += time.saturating_sub(self.left);
        self.left = self.left.saturating_sub(time);
    }
}

/// All of these devices, in ascending order from the first one after `last`.
fn after(devices: &[u64], last: u64) -> impl Iterator<Item = u64> {
    let (before, after) = devices.split_at(devices.partition_point(|&id| id <= last));
    after.iter().chain(before).copied()
}

impl InflightState {
    /// Follows whether anything completes: whether I/Os are in flight and none has completed since the last collection.
    fn is_stalled(&mut self, diskstats: DiskStats, now: Instant) -> bool {
        if diskstats.in_flight() == 0 || !diskstats.has_completed_as_many_as(&self.diskstats) {
            self.stalled_since = None;
        } else {
            self.stalled_since.get_or_insert(now);
        }
        self.diskstats = diskstats;
        self.stalled_since.is_some()
    }

    /// Takes over what a survey found; none if there was none.
    fn update(&mut self, survey: Option<Survey>, now: Instant) {
        let survey = survey.unwrap_or(Survey { untimed: 1, ..Survey::default() });
        let oldest = survey.oldest.map_or(Duration::ZERO, |oldest| oldest.age);
        let stalled = self.stalled_since.map_or(Duration::ZERO, |since| now - since);
        // A request without a timestamp may be the oldest one.
        self.latest.is_exact = survey.untimed == 0;
        self.latest.oldest = if self.latest.is_exact { oldest } else { oldest.max(stalled) };
        self.oldest = survey.oldest;
    }
}

impl Collector {
    /// Looks for I/Os in flight on each device that is shown, by disk statistics that were read in this collection.
    pub(super) fn look_for_inflight(&mut self, diskstats: &BTreeMap<u64, DiskStats>) {
        let now = Instant::now();
        let (mut busy, mut idle) = (Vec::new(), Vec::new());
        for (&id, known) in &mut self.devices {
            let Some(&diskstats) = diskstats.get(&id) else { continue };
            let (name, state) = (&known.device.name, &mut known.inflight);
            let in_flight = diskstats.in_flight() > 0;
            (state.latest.reads, state.latest.writes) =
                if in_flight { sysfs::inflight(&self.host.sysfs, name) } else { (0, 0) };
            // Without I/O statistics nothing seems to complete, and there are no timestamps.
            let is_stalled = known.device.iostats && state.is_stalled(diskstats, now);
            let requests = Requests { probe: &self.probe, sysfs: &self.host.sysfs, device: name };
            if let Some(oldest) = state.oldest.and_then(|oldest| requests.still_pending(oldest)) {
                state.latest.oldest = oldest.age;
                state.oldest = Some(oldest);
            } else if is_stalled {
                state.update(requests.survey(), now);
            } else if in_flight {
                state.update(None, now);
                busy.push(id);
            } else {
                state.update(self.probe.sees_inflight().then(Survey::default), now);
                idle.push(id);
            }
        }
        let mut turns = std::mem::take(&mut self.survey_turns);
        turns.budget.refill(self.interval / SHARE);
        self.survey_in_turns(&busy, &mut turns.busy, &mut turns.budget, now);
        // Without any in flight, requests may still wait in the scheduler. One device in each collection is enough, as they
        // wait there for long if something is wrong.
        let next_idle = after(&idle, turns.idle).next();
        self.survey_in_turns(next_idle.as_slice(), &mut turns.idle, &mut turns.budget, now);
        self.survey_turns = turns;
    }

    /// Surveys the devices after the last one, as many as the budget allows.
    fn survey_in_turns(&mut self, devices: &[u64], last: &mut u64, budget: &mut Budget, now: Instant) {
        for id in after(devices, *last) {
            let Some(known) = self.devices.get_mut(&id).filter(|_| budget.is_left()) else { return };
            let requests =
                Requests { probe: &self.probe, sysfs: &self.host.sysfs, device: &known.device.name };
            let began = Instant::now();
            known.inflight.update(requests.survey(), now);
            budget.spend(began.elapsed());
            *last = id;
        }
    }
}

/// The requests of a device that have not completed.
struct Requests<'a> {
    probe: &'a Probe,
    sysfs: &'a Path,
    device: &'a str,
}

impl Requests<'_> {
    /// The oldest request where this one was found, unless it is younger: then this one has completed.
    fn still_pending(&self, oldest: Pending) -> Option<Pending> {
        let directory = self.open(oldest.place.hardware_queue).ok()?;
        let found = self.look(&directory, oldest.place).ok()?;
        pending(oldest.place, &found).filter(|found| found.allocated_at <= oldest.allocated_at)
    }

    /// Looks at all of them; none if that is not possible.
    fn survey(&self) -> Option<Survey> {
        if !self.probe.sees_inflight() {
            return None;
        }
        let mut survey = Survey::default();
        for hardware_queue in sysfs::hardware_queues(self.sysfs, self.device) {
            // One that cannot be opened has just been removed.
            let Ok(directory) = self.open(hardware_queue) else { continue };
            let has_scheduler =
                self.survey_tags(&mut survey, &directory, hardware_queue, Tags::Driver).ok()?;
            if has_scheduler {
                self.survey_tags(&mut survey, &directory, hardware_queue, Tags::Scheduler).ok()?;
            }
        }
        Some(survey)
    }

    /// Looks at the requests with these tags. Returns whether requests have tags of a scheduler.
    fn survey_tags(
        &self,
        survey: &mut Survey,
        directory: &fs::File,
        hardware_queue: u32,
        tags: Tags,
    ) -> Result<bool> {
        let mut first = 0;
        loop {
            let place = Place { hardware_queue, tags, first };
            let found = self.look(directory, place)?;
            survey.add(place, &found);
            first += SLOTS_PER_RUN;
            if first >= found.slots {
                return Ok(found.has_scheduler != 0);
            }
        }
    }

    fn open(&self, hardware_queue: u32) -> io::Result<fs::File> {
        let directory =
            self.sysfs.join("block").join(self.device).join("mq").join(hardware_queue.to_string());
        fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)
    }

    fn look(&self, directory: &fs::File, place: Place) -> Result<Found> {
        self.probe.look_at_inflight(directory.as_fd(), place.tags, place.first)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use biolat_common::inflight::{Found, Tags};

    use super::{Budget, InflightState, Place, Survey, after};
    use crate::device::diskstats::DiskStats;

    const SECOND: Duration = Duration::from_secs(1);

    fn survey(found: &[(u32, u32, u64)]) -> Survey {
        let mut survey = Survey::default();
        for (&(requests, untimed, allocated_at), first) in found.iter().zip(0..) {
            let place = Place { hardware_queue: 0, tags: Tags::Driver, first };
            let now = 100 * SECOND.as_nanos() as u64;
            let oldest_allocated_at = allocated_at * SECOND.as_nanos() as u64;
            survey.add(
                place,
                &Found { slots: 256, has_scheduler: 0, requests, untimed, oldest_allocated_at, now },
            );
        }
        survey
    }

    fn updated(state: &mut InflightState, survey: Option<Survey>, now: Instant) -> (u64, bool) {
        state.update(survey, now);
        (state.latest.oldest.as_secs(), state.latest.is_exact)
    }

    #[test]
    fn the_oldest_of_all_runs_is_the_answer() {
        let (mut state, now) = (InflightState::default(), Instant::now());
        let found = survey(&[(3, 0, 90), (0, 0, 0), (2, 0, 84), (9, 0, 99)]);
        assert_eq!(updated(&mut state, Some(found), now), (16, true));
        assert_eq!(state.oldest.unwrap().place.first, 2);
        assert_eq!(updated(&mut state, Some(survey(&[(0, 0, 0)])), now), (0, true));
        assert_eq!(state.oldest, None);
    }

    #[test]
    fn without_timestamps_the_time_without_a_completion_is_a_lower_bound() {
        let began = Instant::now();
        let mut state = InflightState::default();
        let diskstats = |completed, in_flight| DiskStats::new([completed, 0, 0, 0]).with_in_flight(in_flight);
        assert!(!state.is_stalled(diskstats(5, 2), began));
        assert!(state.is_stalled(diskstats(5, 2), began + SECOND));
        assert!(state.is_stalled(diskstats(5, 2), began + 8 * SECOND));
        assert_eq!(updated(&mut state, None, began + 8 * SECOND), (7, false));
        assert_eq!(updated(&mut state, Some(survey(&[(2, 2, 0)])), began + 8 * SECOND), (7, false));
        assert_eq!(updated(&mut state, Some(survey(&[(2, 1, 80)])), began + 8 * SECOND), (20, false));
        assert!(!state.is_stalled(diskstats(6, 2), began + 9 * SECOND));
        assert_eq!(updated(&mut state, None, began + 9 * SECOND), (0, false));
        assert!(!state.is_stalled(diskstats(6, 0), began + 10 * SECOND));
    }

    #[test]
    fn a_long_survey_is_paid_for_by_later_collections() {
        let mut budget = Budget::default();
        budget.refill(SECOND);
        budget.spend(SECOND / 2);
        assert!(budget.is_left());
        budget.spend(3 * SECOND);
        let mut left = || {
            budget.refill(SECOND);
            budget.is_left()
        };
        assert_eq!([left(), left(), left(), left()], [false, false, true, true]);
    }

    #[test]
    fn turns_go_round() {
        let from = |last| after(&[3, 5, 9], last).collect::<Vec<_>>();
        assert_eq!((from(0), from(5), from(9)), (vec![3, 5, 9], vec![9, 3, 5], vec![3, 5, 9]));
        assert_eq!(after(&[], 4).next(), None);
    }
}
