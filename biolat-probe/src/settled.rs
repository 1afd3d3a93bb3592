//! Slots whose counters have not changed lately. On a machine with hundreds of CPUs, a collection would otherwise read megabytes of
//! counters of an idle drive.

use super::series_maps::SlotReading;

/// The last reading of a slot, and what identified the counters.
pub(super) struct LastReading {
    /// A number for each row that changes with its counters.
    checksums: Vec<u64>,
    /// How many readings in a row have found these checksums.
    same: u32,
    reading: SlotReading,
}

/// How many readings must find the same checksums before the counters are no longer read: a run that was counting a completion may
/// have changed the checksum before it changed the counters, and a virtual CPU may pause in between.
const SETTLED: u32 = 4;

impl LastReading {
    /// Nothing has been read yet.
    pub(super) const NONE: Self = Self { checksums: Vec::new(), same: 0, reading: SlotReading::ZERO };

    /// Returns the last reading if the counters have not changed for a while; otherwise reads them, with their checksums.
    pub(super) fn update(
        &mut self,
        checksums: impl Iterator<Item = u64>,
        read: impl FnOnce() -> (Vec<u64>, SlotReading),
    ) -> &SlotReading {
        if self.same < SETTLED || !checksums.eq(self.checksums.iter().copied()) {
            let (checksums, reading) = read();
            let same = if checksums == self.checksums { self.same + 1 } else { 1 };
            *self = Self { same, checksums, reading };
        }
        &self.reading
    }
}

#[cfg(test)]
mod tests {
    use super::LastReading;
    use crate::SlotReading;

    #[test]
    fn counters_are_read_until_they_have_settled() {
        let (mut last, mut reads) = (LastReading::NONE, 0);
        let mut update = |checksums: [u64; 2]| {
            let read = || {
                reads += 1;
                (checksums.to_vec(), SlotReading { completions: vec![reads], ..SlotReading::ZERO })
            };
            last.update(checksums.into_iter(), read).completions[0]
        };
        assert_eq!([[1, 1]; 6].map(&mut update), [1, 2, 3, 4, 4, 4]);
        assert_eq!([[1, 2]; 5].map(&mut update), [5, 6, 7, 8, 8]);
        assert_eq!(update([1, 1]), 9);
    }
}
