//! Completions for which the kernel did not run the probe, because it was already running on that CPU. After the first one, the
//! understudy is attached and records them. If the kernel refuses to run the understudy as well, the completion is lost as
//! `recursion`.

use anyhow::Result;
use biolat_common::lost::{Counts, LEFT, TAKEN};

use super::Collector;

/// A task can be preempted between the two programs. Its completion then counts as refused or left, but not yet as taken. Usually
/// it is taken within this many readings; if the task is held up for longer, the loss count is too high.
const READINGS: usize = 4;

/// Completions that neither program recorded.
#[derive(Default)]
pub(super) struct Refusals {
    lost: u64,
    /// Losses according to the latest readings.
    readings: [u64; READINGS],
    /// Whether attaching the understudy has failed.
    has_failed: bool,
}

impl Refusals {
    /// Starts from the number of losses in previous daemons.
    pub(super) fn continue_from(lost: u64) -> Self {
        Self { lost, readings: [lost; READINGS], has_failed: false }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Updates the losses: completions that the first program left or was not run for, minus completions that the understudy
    /// took. Returns the number of possible losses, which is never below the certain ones, [`lost`](Self::lost). `counts` must be
    /// read after `refused`.
    pub(super) fn read(&mut self, refused: u64, counts: &Counts) -> u64 {
        let lost = (refused + counts[LEFT]).saturating_sub(counts[TAKEN]);
        self.readings.rotate_left(1);
        self.readings[READINGS - 1] = lost;
        // Until the understudy is attached, nothing can be taken later. `TAKEN` is also 0 for a moment after that, so a
        // completion in this window may count as lost although it is taken later.
        let is_certain = counts[TAKEN] == 0;
        let certain = if is_certain { lost } else { self.readings.into_iter().min().unwrap_or(lost) };
        self.lost = self.lost.max(certain);
        lost.max(self.lost)
    }
}

impl Collector {
    /// Attaches the understudy if the kernel has refused to run the probe for a completion.
    pub(super) fn attach_understudy(&mut self, refused: u64) {
        if refused == 0 || self.refusals.has_failed || !self.probe.lacks_understudy() {
            return;
        }
        match self.try_attach_understudy() {
            Ok(true) => log::info!(
                "the kernel refused the probe {refused} completions, because it was already running on the CPU: from now on a \
                 second program counts such completions"
            ),
            Ok(false) => {}
            Err(error) => {
                self.refusals.has_failed = true;
                log::error!(
                    "cannot attach the second program, which counts the completions that the kernel refuses the probe: they are \
                     lost (recursion): {error:#}"
                );
            }
        }
    }

    /// Attaches the understudy, once its counters are kept for the next daemon. Returns `false` if it cannot be attached yet.
    fn try_attach_understudy(&mut self) -> Result<bool> {
        self.probe.add_understudy_counters()?;
        if let Some(keep) = &mut self.keep {
            keep.store_arrays(&self.probe)?;
        }
        let is_attached = self.probe.attach_understudy()?;
        if let (true, Some(keep)) = (is_attached, &self.keep) {
            keep.store_understudy(&self.probe)?;
        }
        Ok(is_attached)
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::lost::{LEFT, REASONS, TAKEN};

    use super::Refusals;

    fn counts(left: u64, taken: u64) -> [u64; REASONS] {
        let mut counts = [0; REASONS];
        (counts[LEFT], counts[TAKEN]) = (left, taken);
        counts
    }

    #[test]
    fn completion_taken_later_is_not_lost() {
        let mut refusals = Refusals::default();
        assert_eq!((refusals.read(5, &counts(0, 0)), refusals.lost()), (5, 5), "without an understudy");
        for (refused, left, taken, at_once, lost) in
            [(20, 3, 17, 6, 5), (20, 3, 18, 5, 5), (40, 3, 38, 5, 5), (40, 3, 36, 7, 5), (41, 3, 37, 7, 5)]
        {
            assert_eq!(refusals.read(refused, &counts(left, taken)), at_once);
            assert_eq!(refusals.lost(), lost);
        }
        for _ in 0..4 {
            refusals.read(41, &counts(3, 37));
        }
        assert_eq!(refusals.lost(), 7, "never taken");
        refusals.read(41, &counts(3, 44));
        assert_eq!(refusals.lost(), 7, "never shrinks");
    }
}
