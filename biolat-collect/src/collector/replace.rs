//! Replaces the probe of the last daemon by another version of it: the totals continue. The old probe is detached, and its counters
//! are read at rest, before the new one is attached: nothing is counted twice. What completes in between is missed, which the
//! audit finds.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use biolat_common::lost::REASONS;
use biolat_probe::{Probe, ProgramCounts, SeriesMaps as _};

use super::{
    Collector,
    reference::Reference,
    state::{numbers::array, record::EarlierRecord},
};

/// How long the last probe's links may take to be closed. systemd closes them when it has read the message.
const DETACH_TIMEOUT: Duration = Duration::from_secs(5);

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

/// Ends a probe: detaches it, adds the rest of its counts, and moves the series to one that is loaded. Returns when the probe was
/// detached.
pub(super) fn end_probe(collector: &mut Collector, next: &mut Probe) -> Result<Instant> {
    // What the last daemon had switched away from and not taken.
    collector.workloads.take(&mut collector.probe)?;
    collector.probe.detach();
    // From now on the state says that there are no links: whoever continues with it attaches another probe.
    collector.commit();
    let detached = Instant::now();
    if let Some(keep) = &collector.keep {
        keep.remove_links()?;
    }
    read_to_the_end(collector)?;
    collector.read_slow_records();
    let Collector { probe, store, earlier, .. } = collector;
    *earlier = EarlierProbes {
        losses: earlier.with_losses(probe.maps.losses()?),
        program: earlier.with_program(probe.program_counts()?),
        slow_dropped: earlier.with_slow_dropped(probe.slow_records_dropped()?),
    };
    store.move_to(&mut next.maps)?;
    Ok(detached)
}

/// Reads the counters of a probe that is detached until nothing has completed since the last reading, which then has everything.
/// A store of links may take a moment to close them.
fn read_to_the_end(collector: &mut Collector) -> Result<()> {
    let began = Instant::now();
    while began.elapsed() < DETACH_TIMEOUT {
        collector.switch_workloads()?;
        collector.probe.maps.wait_for_runs();
        collector.workloads.take(&mut collector.probe)?;
        let index = collector.probe.maps.index()?;
        let completions = collector.read_series(&index)?;
        // Before the tables are switched again.
        collector.commit();
        if completions == 0 {
            return Ok(());
        }
    }
    bail!("its probe still counts: another process keeps it attached")
}

/// Continues with the probe that the series were moved to.
pub(super) fn continue_with_probe(collector: &mut Collector, probe: Probe) {
    collector.workloads.reference = Reference::of(&probe);
    collector.probe = probe;
    collector.keep = None;
}
