//! Replaces the previous daemon's probe with a new version and continues the totals. The new probe is attached instead of the
//! old one, whose counters are read once they are at rest, so nothing is counted twice. Completions in between are missed, and
//! the audit detects them.

use std::time::Duration;

use anyhow::Result;
use biolat_common::lost::REASONS;
use biolat_probe::{Probe, ProgramCounts, SeriesMaps as _};

use super::{
    Collector,
    reference::Reference,
    state::{numbers::array, record::EarlierRecord},
};

/// Counts of probes that have been replaced, to which the current probe's counts are added.
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
            tag_wait_misses: self.program.tag_wait_misses + counts.tag_wait_misses,
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
            tag_wait_misses: program.tag_wait_misses,
            slow_dropped,
            runs: program.runs,
            run_time_ns: program.run_time_ns,
        }
    }

    /// Restores the counts; `None` if the record is invalid.
    pub(super) fn from_record(record: &EarlierRecord) -> Option<Self> {
        let program = ProgramCounts {
            runs: record.runs,
            run_time_ns: record.run_time_ns,
            recursion_misses: record.recursion_misses,
            requeue_misses: record.requeue_misses,
            tag_wait_misses: record.tag_wait_misses,
            ..ProgramCounts::default()
        };
        Some(Self { losses: array(&record.losses)?, program, slow_dropped: record.slow_dropped })
    }
}

/// Attaches a loaded probe instead of the collector's, adds the old probe's remaining counts, and moves the series. Returns how
/// long neither was attached; `None` if the old probe had no links left, in which case the new one is not attached yet.
pub(super) fn replace_probe(collector: &mut Collector, next: &mut Probe) -> Result<Option<Duration>> {
    // The previous daemon may have switched away from this table without taking it.
    collector.workloads.take(&mut collector.probe)?;
    let links = collector.probe.take_links();
    // From now on the state says that there are no links, so a daemon that continues from it attaches another probe.
    collector.commit();
    if let (Some(_), Some(keep)) = (&links, &collector.keep) {
        keep.remove_links()?;
    }
    let gap = links.map(|links| next.replace(links)).transpose()?;
    read_at_rest(collector)?;
    collector.store.move_to(&mut next.maps)?;
    Ok(gap)
}

/// Reads the counters of a detached probe for the last time.
fn read_at_rest(collector: &mut Collector) -> Result<()> {
    collector.probe.maps.wait_for_runs();
    collector.switch_workloads()?;
    collector.workloads.take(&mut collector.probe)?;
    let index = collector.probe.maps.index()?;
    // After three equal readings, nothing counts as incomplete.
    for _ in 0..3 {
        collector.read_series(&index)?;
    }
    collector.read_tag_waits()?;
    collector.devices.restart_tag_waits();
    if collector.read_slow_records() {
        collector.commit();
    }
    let Collector { probe, earlier, .. } = collector;
    *earlier = EarlierProbes {
        losses: earlier.with_losses(probe.maps.losses()?),
        program: earlier.with_program(probe.program_counts()?),
        slow_dropped: earlier.with_slow_dropped(probe.slow_records_dropped()?),
    };
    Ok(())
}

/// Continues with the probe that the series were moved to.
pub(super) fn continue_with_probe(collector: &mut Collector, probe: Probe) {
    collector.workloads.reference = Reference::of(&probe);
    collector.probe = probe;
    collector.keep = None;
}
