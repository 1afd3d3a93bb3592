//! I/Os in flight: how many there are, and the age of the oldest one on each device.
//!
//! A hung device must be reported in every collection, without slowing down a busy node. No I/O can become older than the oldest
//! one, so that one is looked up first: while it is pending, its age is the answer. Otherwise all requests of the device are
//! surveyed, immediately if the device has just stalled, or else when its turn comes. A device that keeps stalling also waits its
//! turn; until then the age is a lower bound.

use std::{
    collections::BTreeMap,
    fs, io,
    os::{fd::AsFd as _, unix::fs::OpenOptionsExt as _},
    path::Path,
    time::{Duration, Instant},
};

use biolat_common::inflight::{Found, SLOTS_PER_RUN};
use biolat_model::snapshot::Inflight;
use biolat_probe::Probe;

use super::devices::Devices;
use crate::device::{
    diskstats::DiskStats,
    sysfs::{hardware_queues, inflight},
};

/// Surveys may use 1/125 of the time, which is 0.8 % of one CPU.
const SHARE: u32 = 125;

/// Maximum time that surveys can borrow from later collections: one minute's share.
const MOST_DEBT: Duration = Duration::from_millis(60_000 / SHARE as u64);

/// Time for which a device without I/Os in flight counts as surveyed.
const SURVEY_LASTS: Duration = Duration::from_secs(10);

/// State of a device between collections.
#[derive(Default)]
struct InflightState {
    latest: Inflight,
    oldest: Option<Pending>,
    /// Start of the current period with I/Os in flight and no completion.
    stalled_since: Option<Instant>,
    /// Time of the last survey that found nothing.
    was_clear: Option<Instant>,
    diskstats: DiskStats,
}

/// A pending request, and where it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pending {
    place: Place,
    allocated_at: u64,
    age: Duration,
}

/// The slots of a hardware queue that one run of the program looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    hardware_queue: u32,
    first: u32,
}

/// Result of looking at all requests of a device.
#[derive(Default)]
struct Survey {
    requests: u32,
    oldest: Option<Pending>,
}

impl Survey {
    fn add(&mut self, place: Place, found: &Found) {
        self.requests += found.requests;
        if let Some(pending) = pending(place, found)
            && self.oldest.is_none_or(|oldest| pending.allocated_at < oldest.allocated_at)
        {
            self.oldest = Some(pending);
        }
    }
}

fn pending(place: Place, found: &Found) -> Option<Pending> {
    let allocated_at = found.oldest_allocated_at;
    let age = Duration::from_nanos(found.now.saturating_sub(allocated_at));
    (allocated_at != 0).then_some(Pending { place, allocated_at, age })
}

/// The state of each device, whose turn it is to be surveyed, and how long that may take.
#[derive(Default)]
pub(super) struct Surveys {
    states: BTreeMap<u64, InflightState>,
    /// The device that was surveyed last.
    last: u64,
    budget: Budget,
}

/// Time budget for surveys. A survey that exceeds it borrows from later collections.
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

    /// Whether a survey may borrow from later collections.
    fn may_borrow(&self) -> bool {
        self.debt < MOST_DEBT
    }

    fn spend(&mut self, time: Duration) {
        self.debt += time.saturating_sub(self.left);
        self.left = self.left.saturating_sub(time);
    }
}

/// Returns all the devices in ascending order, starting after `last` and wrapping around.
fn after(devices: &[u64], last: u64) -> impl Iterator<Item = u64> {
    let (before, after) = devices.split_at(devices.partition_point(|&id| id <= last));
    after.iter().chain(before).copied()
}

impl InflightState {
    /// Tracks whether I/Os complete. Returns whether the device has just stalled: there are I/Os in flight, and none has
    /// completed since the last collection.
    fn stalls(&mut self, diskstats: DiskStats, now: Instant) -> bool {
        if diskstats.in_flight() == 0 || !diskstats.has_same_completions(&self.diskstats) {
            self.stalled_since = None;
        } else {
            self.stalled_since.get_or_insert(now);
        }
        self.diskstats = diskstats;
        self.stalled_since == Some(now)
    }

    /// Updates the state with the result of a survey; `None` if there was none.
    fn update(&mut self, survey: Option<Survey>, now: Instant) {
        self.oldest = survey.as_ref().and_then(|survey| survey.oldest);
        if survey.as_ref().is_some_and(|survey| survey.requests == 0) {
            self.was_clear = Some(now);
        }
        let is_clear = survey.is_none()
            && self.diskstats.in_flight() == 0
            && self.was_clear.is_some_and(|clear| now - clear < SURVEY_LASTS);
        (self.latest.oldest, self.latest.is_exact) = match (self.oldest, survey) {
            (Some(oldest), _) => (oldest.age, true),
            (None, Some(Survey { requests: 0, .. })) => (Duration::ZERO, true),
            _ if is_clear => (Duration::ZERO, true),
            // Not surveyed, or no request has a timestamp.
            _ => (self.stalled_since.map_or(Duration::ZERO, |since| now - since), false),
        };
    }
}

impl Surveys {
    /// Looks for I/Os in flight on each shown device, using the disk statistics read in this collection.
    pub(super) fn look(
        &mut self,
        devices: &Devices,
        diskstats: &BTreeMap<u64, DiskStats>,
        probe: &Probe,
        sysfs: &Path,
        interval: Duration,
    ) {
        let (now, Self { states, last, budget }) = (Instant::now(), self);
        budget.refill(interval / SHARE);
        let (mut before, mut due) = (std::mem::take(states), Vec::new());
        for (id, known) in devices.shown() {
            let name = &known.device.name;
            // Without I/O statistics nothing seems to complete, and there may be no timestamps.
            let Some(&diskstats) = diskstats.get(&id).filter(|_| known.device.iostats) else { continue };
            let state = states.entry(id).insert_entry(before.remove(&id).unwrap_or_default()).into_mut();
            (state.latest.reads, state.latest.writes) =
                if diskstats.in_flight() > 0 { inflight(sysfs, name) } else { (0, 0) };
            let stalls = state.stalls(diskstats, now);
            let requests = Requests { probe, sysfs, device: name };
            if let Some(oldest) = state.oldest.and_then(|oldest| requests.still_pending(oldest)) {
                state.update(Some(Survey { requests: 1, oldest: Some(oldest) }), now);
            } else if stalls && budget.may_borrow() {
                budget.survey(&requests, state, now);
            } else {
                state.update(None, now);
                due.push(id);
            }
        }
        for id in after(&due, *last) {
            let (Some(known), Some(state), true) = (devices.get(id), states.get_mut(&id), budget.is_left())
            else {
                break;
            };
            budget.survey(&Requests { probe, sysfs, device: &known.device.name }, state, now);
            *last = id;
        }
    }

    /// Returns the I/Os in flight on a device.
    pub(super) fn latest(&self, id: u64) -> Inflight {
        self.states.get(&id).map(|state| state.latest).unwrap_or_default()
    }
}

impl Budget {
    fn survey(&mut self, requests: &Requests<'_>, state: &mut InflightState, now: Instant) {
        let began = Instant::now();
        state.update(requests.survey(), now);
        self.spend(began.elapsed());
    }
}

/// The pending requests of a device.
struct Requests<'a> {
    probe: &'a Probe,
    sysfs: &'a Path,
    device: &'a str,
}

impl Requests<'_> {
    /// Returns the oldest request at the position of `oldest`; `None` if it is younger, which means that `oldest` has completed.
    fn still_pending(&self, oldest: Pending) -> Option<Pending> {
        let directory = self.open(oldest.place.hardware_queue).ok()?;
        let found = self.probe.look_at_inflight(directory.as_fd(), oldest.place.first).ok()?;
        pending(oldest.place, &found).filter(|found| found.allocated_at <= oldest.allocated_at)
    }

    /// Surveys all pending requests of the device; `None` if that is not possible.
    fn survey(&self) -> Option<Survey> {
        if !self.probe.sees_inflight() {
            return None;
        }
        let mut survey = Survey::default();
        for hardware_queue in hardware_queues(self.sysfs, self.device)? {
            let directory = match self.open(hardware_queue) {
                Ok(directory) => directory,
                // The queue has just been removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return None,
            };
            let mut first = 0;
            loop {
                let found = self.probe.look_at_inflight(directory.as_fd(), first).ok()?;
                survey.add(Place { hardware_queue, first }, &found);
                first += SLOTS_PER_RUN;
                if first >= found.slots {
                    break;
                }
            }
        }
        Some(survey)
    }

    fn open(&self, hardware_queue: u32) -> io::Result<fs::File> {
        let directory =
            self.sysfs.join("block").join(self.device).join("mq").join(hardware_queue.to_string());
        fs::OpenOptions::new().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use biolat_common::inflight::Found;

    use super::{Budget, InflightState, Place, SHARE, Survey, after};
    use crate::device::diskstats::DiskStats;

    const SECOND: Duration = Duration::from_secs(1);

    fn survey(found: &[(u32, u64)]) -> Survey {
        let mut survey = Survey::default();
        for (&(requests, allocated_at), first) in found.iter().zip(0..) {
            let nanoseconds = |seconds: u64| seconds * SECOND.as_nanos() as u64;
            let oldest_allocated_at = nanoseconds(allocated_at);
            let found = Found { slots: 256, requests, oldest_allocated_at, now: nanoseconds(100) };
            survey.add(Place { hardware_queue: 0, first }, &found);
        }
        survey
    }

    fn updated(state: &mut InflightState, survey: Option<Survey>, now: Instant) -> (u64, bool) {
        state.update(survey, now);
        (state.latest.oldest.as_secs(), state.latest.is_exact)
    }

    #[test]
    fn reports_oldest_of_all_runs() {
        let (mut state, now) = (InflightState::default(), Instant::now());
        let found = survey(&[(3, 90), (0, 0), (2, 84), (9, 99)]);
        assert_eq!(updated(&mut state, Some(found), now), (16, true));
        assert_eq!(state.oldest.unwrap().place.first, 2);
        assert_eq!(updated(&mut state, Some(survey(&[(0, 0)])), now), (0, true));
        assert_eq!(state.oldest, None);
    }

    #[test]
    fn reports_lower_bound_without_timestamps() {
        let began = Instant::now();
        let mut state = InflightState::default();
        let diskstats = |completed, in_flight| DiskStats::new([completed, 0, 0, 0]).with_in_flight(in_flight);
        assert!(!state.stalls(diskstats(5, 2), began));
        assert!(state.stalls(diskstats(5, 2), began + SECOND));
        assert!(!state.stalls(diskstats(5, 2), began + 8 * SECOND), "reported only once");
        assert_eq!(updated(&mut state, None, began + 8 * SECOND), (7, false));
        assert_eq!(updated(&mut state, Some(survey(&[(2, 0)])), began + 8 * SECOND), (7, false));
        assert_eq!(updated(&mut state, Some(survey(&[(2, 80)])), began + 8 * SECOND), (20, true));
        // The I/Os in flight are not counted by the disk statistics.
        assert_eq!(updated(&mut state, Some(survey(&[(0, 0)])), began + 8 * SECOND), (0, true));
        assert!(!state.stalls(diskstats(6, 2), began + 9 * SECOND));
        assert_eq!(updated(&mut state, None, began + 9 * SECOND), (0, false));
        assert!(!state.stalls(diskstats(6, 0), began + 10 * SECOND));
        assert_eq!(
            updated(&mut state, None, began + 10 * SECOND),
            (0, true),
            "a survey found nothing 2 s ago"
        );
        assert_eq!(updated(&mut state, None, began + 20 * SECOND), (0, false));
    }

    #[test]
    fn long_survey_borrows_from_later_collections() {
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

    /// Devices that keep stalling do not starve the others forever.
    #[test]
    fn limits_debt_of_surveys() {
        let mut budget = Budget::default();
        let share = SECOND / SHARE;
        let surveys = (0..1000).filter(|_| {
            budget.refill(share);
            let may = budget.may_borrow();
            if may {
                budget.spend(20 * share);
            }
            may
        });
        // The first few borrow; after that, one in 20 collections has a survey.
        assert!((50..56).contains(&surveys.count()));
        budget.refill(60 * SECOND / SHARE + 20 * share);
        assert!(budget.debt.is_zero());
    }

    #[test]
    fn turns_wrap_around() {
        let from = |last| after(&[3, 5, 9], last).collect::<Vec<_>>();
        assert_eq!((from(0), from(5), from(9)), (vec![3, 5, 9], vec![9, 3, 5], vec![3, 5, 9]));
        assert_eq!(after(&[], 4).next(), None);
    }
}
