//! The kernel's disk statistics: `/sys/block/<device>/stat`, the same counters as in `/proc/diskstats`.
//!
//! Format: <https://docs.kernel.org/block/stat.html>

use std::{io, ops::Index, path::Path};

use biolat_model::device::{Device, Group};

use super::sysfs::attribute;

/// Completed I/Os by group, and the number of I/Os in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    completed: [u64; 4],
    in_flight: u64,
}

impl DiskStats {
    /// Creates statistics from counts in the order of [`Group::ALL`].
    #[cfg(test)]
    pub const fn new(counts: [u64; 4]) -> Self {
        Self { completed: counts, in_flight: 0 }
    }

    #[cfg(test)]
    pub const fn with_in_flight(self, in_flight: u64) -> Self {
        Self { in_flight, ..self }
    }

    /// Returns the number of I/Os that have not completed: before Linux 6.16, only I/Os dispatched to the driver; since then, all
    /// I/Os accounted as started, including those in the scheduler. `inflight` in sysfs always counts only the former.
    pub const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Reads a device's counters since it appeared.
    pub fn read(sysfs: &Path, device: &Device) -> io::Result<Self> {
        let path = sysfs.join("block").join(&device.name).join("stat");
        Self::parse(attribute(&path, &mut [0; 512])?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Parses the file. Discards were added in Linux 4.18, flushes in 5.5.
    fn parse(text: &str) -> Option<Self> {
        let (mut fields, mut found) = ([0; 16], 0);
        for field in text.split_ascii_whitespace() {
            let field = field.parse().ok()?;
            if let Some(place) = fields.get_mut(found) {
                *place = field;
            }
            found += 1;
        }
        let completed = [fields[0], fields[4], fields[11], fields[15]];
        (found >= 11).then_some(Self { completed, in_flight: fields[8] })
    }

    /// Returns the number of I/Os that have completed, of all groups.
    pub fn completions(&self) -> u64 {
        self.completed.iter().sum()
    }

    /// Whether nothing completed between the two readings.
    pub fn has_same_completions(&self, other: &Self) -> bool {
        self.completed == other.completed
    }

    pub fn add(&mut self, group: Group, count: u64) {
        self.completed[group as usize] += count;
    }
}

impl Index<Group> for DiskStats {
    type Output = u64;

    fn index(&self, group: Group) -> &u64 {
        &self.completed[group as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::DiskStats;

    #[test]
    fn parses_stat() {
        let line = "   44190     6568  3174770     8127    54406    27526  5446240    12349        0     7684    \
                    20914     5819        9   938592      381     1791       56\n";
        assert_eq!(DiskStats::parse(line), Some(DiskStats::new([44190, 54406, 5819, 1791])));
        assert_eq!(
            DiskStats::parse("1 2 3 4 5 6 7 8 9 10 11"),
            Some(DiskStats::new([1, 5, 0, 0]).with_in_flight(9))
        );
        assert_eq!(DiskStats::parse("1 2 3"), None);
        assert_eq!(DiskStats::parse("a b"), None);
    }
}
