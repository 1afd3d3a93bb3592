//! Groups of ops in the disk statistics.

use serde::{Deserialize, Serialize};

/// A group of ops in the disk statistics (`STAT_READ`, …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Reads, and all other ops with an even number.
    Read,
    /// All kinds of writes: write, write_zeroes, zone ops.
    Write,
    /// Discards.
    Discard,
    /// Flush requests.
    Flush,
}

impl Group {
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Discard, Self::Flush];

    /// Returns the value of the label `op`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }

    /// Returns the group under which the kernel accounts the op with this number and name, or `None` if it does not account it.
    ///
    /// <https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h#L481>
    pub fn of(op: u32, name: &str, accounts_passthrough: bool) -> Option<Self> {
        match name {
            "discard" => Some(Self::Discard),
            "flush" => Some(Self::Flush),
            "drv_in" | "drv_out" | "scsi_in" | "scsi_out" if !accounts_passthrough => None,
            _ if op & 1 == 1 => Some(Self::Write),
            _ => Some(Self::Read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Group;

    #[test]
    fn groups_match_the_kernel() {
        assert_eq!(Group::of(0, "read", false), Some(Group::Read));
        assert_eq!(Group::of(9, "write_zeroes", false), Some(Group::Write));
        assert_eq!(Group::of(3, "discard", false), Some(Group::Discard));
        assert_eq!(Group::of(2, "flush", false), Some(Group::Flush));
        assert_eq!(Group::of(34, "drv_in", false), None);
        assert_eq!(Group::of(35, "drv_out", true), Some(Group::Write));
    }
}
