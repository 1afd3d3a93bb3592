//! Replaces the probe of the last daemon by another version of it: the totals continue, and what completes in between is missed,
//! which the audit finds. Nothing is counted twice.
//!
//! The order makes sure of that. First the counts of the old probe end: the workloads' with their epoch, with which the series
//! agree, and those of the other series with a reading. Then the new probe is attached. The kernel runs a completion by the list
//! of programs that it found when it began with it: one that the old probe has counted before its end has the list from before
//! the new one was attached.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use biolat_common::{lost::REASONS, series::Key};
use biolat_probe::{
    MAP_LAYOUT, MAP_LAYOUT_WITH_UNDERSTUDY, Probe, ProgramCounts, SeriesMaps as _, WorkloadMaps,
};

use super::{
    Collector,
    reference::Reference,
    slow_log,
    state::{numbers::array, record::EarlierRecord},
};

/// What was counted by probes that have been replaced. This one's counts are added.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct EarlierProbes {
    losses: [u64; REASONS],
    program: ProgramCounts,
    slow_dropped: u64,
}

impl EarlierProbes {
    pub(super) fn with_losses(&self, counts: [u64; REASONS]) -> [u64; REASONS] {
        let mut sums = self.losses;
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        sums
    }

    pub(super) fn with_program(&self, counts: ProgramCounts) -> ProgramCounts {
        ProgramCounts {
            runs: self.program.runs + counts.runs,
            run_time_ns: self.program.run_time_ns + counts.run_time_ns,
            recursion_misses: self.program.recursion_misses + counts.recursion_misses,
            requeue_misses: self.program.requeue_misses + counts.requeue_misses,
            ..counts
        }
    }

    pub(super) fn with_slow_dropped(&self, count: u64) -> u64 {
        self.slow_dropped + count
    }

    pub(super) fn to_record(self) -> EarlierRecord {
        let Self { losses, program, slow_dropped } = self;
        EarlierRecord {
            losses: losses.to_vec(),
            recursion_misses: program.recursion_misses,
            requeue_misses: program.requeue_misses,
            slow_dropped,
            runs: program.runs,
            run_time_ns: program.run_time_ns,
        }
    }

    /// `None` if the record is not one of these counts.
    pub(super) fn from_record(record: &EarlierRecord) -> Option<Self> {
        let program = ProgramCounts {
            runs: record.runs,
            run_time_ns: record.run_time_ns,
            recursion_misses: record.recursion_misses,
            requeue_misses: record.requeue_misses,
            ..ProgramCounts::default()
        };
        Some(Self { losses: array(&record.losses)?, program, slow_dropped: record.slow_dropped })
    }
}

impl Collector {
    /// Replaces the probe by one that is loaded and not attached. Before, the state has to be written. Returns for how long no
    /// probe has counted.
    pub(super) fn replace_probe(&mut self, mut new: Probe) -> Result<Duration> {
        for (key, slot) in self.probe.maps.index()? {
            self.store.track(key, slot);
        }
        let keys: Vec<Key> = self.store.keys().collect();
        self.store.create_in(&mut new.maps, &keys)?;

        let earlier = EarlierProbes {
            losses: self.earlier.with_losses(self.probe.maps.losses()?),
            program: self.earlier.with_program(self.probe.program_counts()?),
            slow_dropped: self.earlier.with_slow_dropped(self.probe.slow_records_dropped()?),
        };

        // The end of the old probe's counts.
        let requeues = self.store.requeues_before(&mut self.probe.maps, self.reference.slots())?;
        let began = Instant::now();
        let readings = self.store.readings_beyond(&mut self.probe.maps, self.reference.slots())?;
        if let Some(maps) = &mut self.probe.workloads {
            maps.begin_epoch()?;
        }
        // Programs take the time of a completion themselves: what has an earlier one was run by the list without the new probe.
        let end = slow_log::monotonic_now();
        new.attach_loaded(&self.host)?;
        let gap = began.elapsed();

        // What it has counted until then.
        self.read_last_slow_records(end);
        self.take_workloads()?;
        let index = self.probe.maps.index()?;
        self.store.read_last(&mut self.probe.maps, &index, readings, &requeues, &mut self.reference)?;
        self.store.move_to(&mut new.maps)?;
        self.reference = Reference::new(new.workloads.as_ref().map_or(0, WorkloadMaps::slots));
        self.earlier = earlier;
        self.probe = new;
        Ok(gap)
    }
}

/// Whether the totals of a probe with these options can be continued by one with others: sizes, and workloads, add up to the
/// totals of a series, so both probes must count them, or neither.
pub(super) fn ensure_continuable(map_layout: u32, of_old: (bool, u32), of_new: (bool, u32)) -> Result<()> {
    ensure!(
        (MAP_LAYOUT..=MAP_LAYOUT_WITH_UNDERSTUDY).contains(&map_layout),
        "its probe has maps of another layout"
    );
    ensure!(of_old.0 == of_new.0, "--sizes has changed");
    ensure!((of_old.1 == 0) == (of_new.1 == 0), "--workloads was switched on or off");
    Ok(())
}
