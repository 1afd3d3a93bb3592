//! The kernel's disk statistics: `/sys/block/<device>/stat`, the same counters as in `/proc/diskstats`.
//!
//! Format: <https://docs.kernel.org/block/stat.html>

use std::{io, ops::Index, path::Path};

use super::{Device, sysfs::attribute};

/// Groups of ops in the disk statistics (`STAT_READ`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Reads, and every other op with an even number.
    Read,
    /// Writes of every kind: write, write_zeroes, zone ops.
    Write,
    /// Discards.
    Discard,
    /// Flush requests.
    Flush,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    /// The value of the label `op`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }

    /// The group that the kernel accounts an op in, by its number and name; `None` if it does not account it.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h#L481>
    pub(crate) fn of(op: u32, name: &str, accounts_passthrough: bool) -> Option<Self> {
        match name {
            "discard" => Some(Self::Discard),
            "flush" => Some(Self::Flush),
            "drv_in" | "drv_out" | "scsi_in" | "scsi_out" if !accounts_passthrough => None,
            _ if op & 1 == 1 => Some(Self::Write),
            _ => Some(Self::Read),
        }
    }
}

/// Completed I/Os by group, and how many have been dispatched to the driver and not completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskStats {
    completed: [u64; 4],
    in_flight: u64,
}

impl DiskStats {
    /// From counts in the order of [`Group::ALL`].
    #[cfg(test)]
    pub(crate) const fn new(counts: [u64; 4]) -> Self {
        Self { completed: counts, in_flight: 0 }
    }

    #[cfg(test)]
    pub(crate) const fn with_in_flight(self, in_flight: u64) -> Self {
        Self { in_flight, ..self }
    }

    /// I/Os that have been dispatched to the driver and have not completed.
    pub(crate) const fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// A device's counters since it appeared.
    pub(crate) fn read(sysfs: &Path, device: &Device) -> io::Result<Self> {
        let path = sysfs.join("block").join(&device.name).join("stat");
        Self::parse(attribute(&path, &mut [0; 512])?)
            .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Discards were added in Linux 4.18, flushes in 5.5.
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

    /// Whether nothing has completed between the two.
    pub(crate) fn has_same_completions(&self, other: &Self) -> bool {
        self.completed == other.completed
    }

    pub(crate) fn add(&mut self, group: Group, count: u64) {
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
    use super::{DiskStats, Group};

    #[test]
    fn fields_of_stat() {
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

    #[test]
    fn groups_are_the_kernels() {
        assert_eq!(Group::of(0, "read", false), Some(Group::Read));
        assert_eq!(Group::of(9, "write_zeroes", false), Some(Group::Write));
        assert_eq!(Group::of(3, "discard", false), Some(Group::Discard));
        assert_eq!(Group::of(2, "flush", false), Some(Group::Flush));
        assert_eq!(Group::of(34, "drv_in", false), None);
        assert_eq!(Group::of(35, "drv_out", true), Some(Group::Write));
    }
}
