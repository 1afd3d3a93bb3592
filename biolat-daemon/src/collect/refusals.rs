//! Completions that the kernel refused the probe, because it was already running on that CPU. From the first one on, the understudy
//! records them; what it was refused, too, is lost as `recursion`.

use anyhow::Result;
use biolat_common::lost::{Counts, LEFT, TAKEN};

use super::Collector;

/// A run of both programs may be stopped between them, so that a refused completion is not taken yet. So few collections later it is.
const READINGS: usize = 4;

/// Completions that both programs were refused.
#[derive(Default)]
pub(super) struct Refusals {
    lost: u64,
    /// What the latest readings said.
    readings: [u64; READINGS],
    /// Whether attaching the understudy has failed.
    has_failed: bool,
}

impl Refusals {
    /// That have been lost in an earlier process.
    pub(super) fn continue_from(lost: u64) -> Self {
        Self { lost, readings: [lost; READINGS], has_failed: false }
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// How many are lost, by what the kernel refused the first program and, counted later, what the understudy has taken. It never
    /// shrinks. The result says at once what may have been lost; [`lost`](Self::lost), what certainly was.
    pub(super) fn read(&mut self, refused: u64, counts: &Counts) -> u64 {
        let lost = (refused + counts[LEFT]).saturating_sub(counts[TAKEN]);
        self.readings.rotate_left(1);
        self.readings[READINGS - 1] = lost;
        let is_certain = counts[TAKEN] == 0;
        let certain = if is_certain { lost } else { self.readings.into_iter().min().unwrap_or(lost) };
        self.lost = self.lost.max(certain);
        lost.max(self.lost)
    }
}

impl Collector {
    /// Attaches the understudy, if the kernel has refused the probe a completion.
    pub(super) fn attach_understudy(&mut self, refused: u64) {
        if refused == 0 || self.refusals.has_failed || !self.probe.lacks_understudy() {
            return;
        }
        match self.try_attach_understudy() {
            Ok(()) => log::info!(
                "the kernel refused the probe {refused} completions, as it was already running on the CPU: from now on a second \
                 program counts such completions"
            ),
            Err(error) => {
                self.refusals.has_failed = true;
                log::error!(
                    "cannot attach the program that counts completions that the kernel refuses the probe, they are lost \
                     (recursion): {error:#}"
                );
            }
        }
    }

    /// Everything is kept for the next daemon before it is used.
    fn try_attach_understudy(&mut self) -> Result<()> {
        self.probe.add_understudy_counters()?;
        if let Some(keep) = &mut self.keep {
            keep.store_chunks(&self.probe)?;
        }
        self.probe.attach_understudy()?;
        match &self.keep {
            Some(keep) => keep.store_understudy(&self.probe),
            None => Ok(()),
        }
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
    fn what_the_understudy_has_yet_to_take_is_not_lost() {
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
        assert_eq!(refusals.lost(), 7, "it was not taken");
        refusals.read(41, &counts(3, 44));
        assert_eq!(refusals.lost(), 7, "it never shrinks");
    }
}
