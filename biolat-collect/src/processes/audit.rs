//! Finds completions for which the kernel did not run the program: the disk statistics count them, the program does not.

use std::collections::BTreeMap;

/// The completions of each measured device.
#[derive(Default)]
pub(super) struct Audit(BTreeMap<u64, Completions>);

struct Completions {
    /// According to the disk statistics when the device's measurement began.
    before: u64,
    counted: u64,
    /// Reported as missed so far.
    missed: u64,
}

impl Audit {
    /// Begins with a device that is already measured. `completed` is from the disk statistics, as in [`missed`](Self::missed).
    pub(super) fn begin(&mut self, device: u64, completed: u64) {
        self.0.insert(device, Completions { before: completed, counted: 0, missed: 0 });
    }

    pub(super) fn end(&mut self, device: u64) {
        self.0.remove(&device);
    }

    /// Adds I/Os that the program has counted.
    pub(super) fn count(&mut self, device: u64, ios: u64) {
        if let Some(completions) = self.0.get_mut(&device) {
            completions.counted += ios;
        }
    }

    /// Returns how many completions of a device have been missed since the last call. `completed` must have been read before the
    /// counters: then every I/O in it has been counted or missed, and the counters may be ahead, so this is a lower bound.
    pub(super) fn missed(&mut self, device: u64, completed: u64) -> u64 {
        let Some(completions) = self.0.get_mut(&device) else { return 0 };
        let missed = completed.saturating_sub(completions.before).saturating_sub(completions.counted);
        let growth = missed.saturating_sub(completions.missed);
        completions.missed += growth;
        growth
    }
}

#[cfg(test)]
mod tests {
    use super::Audit;

    #[test]
    fn reports_each_missed_completion_once() {
        let mut audit = Audit::default();
        audit.begin(7, 1_000);
        audit.count(7, 100);
        assert_eq!(audit.missed(7, 1_098), 0, "two have completed since the statistics were read");
        audit.count(7, 50);
        assert_eq!(audit.missed(7, 1_153), 3);
        audit.count(7, 10);
        assert_eq!(audit.missed(7, 1_163), 0);
        assert_eq!(audit.missed(7, 1_164), 1);
        assert_eq!(audit.missed(8, 5), 0, "another device");
        audit.end(7);
        assert_eq!(audit.missed(7, 9_999), 0);
    }
}
