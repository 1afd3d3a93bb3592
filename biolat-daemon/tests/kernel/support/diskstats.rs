//! The oracle: a device's `stat` in sysfs, parsed without the daemon's code.

use std::fs;

/// Fields of `/sys/block/<device>/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat(Vec<u64>);

/// An op group and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) name: &'static str,
    pub(crate) ops: &'static [&'static str],
    completions: usize,
    sectors: Option<usize>,
    milliseconds: usize,
}

pub(crate) const READ: Fields =
    Fields { name: "read", ops: &["read"], completions: 0, sectors: Some(2), milliseconds: 3 };
pub(crate) const WRITE: Fields = Fields {
    name: "write",
    ops: &["write", "write_zeroes", "zone_append"],
    completions: 4,
    sectors: Some(6),
    milliseconds: 7,
};
pub(crate) const DISCARD: Fields =
    Fields { name: "discard", ops: &["discard"], completions: 11, sectors: Some(13), milliseconds: 14 };
pub(crate) const FLUSH: Fields =
    Fields { name: "flush", ops: &["flush"], completions: 15, sectors: None, milliseconds: 16 };

pub(crate) const GROUPS: [Fields; 4] = [READ, WRITE, DISCARD, FLUSH];

impl Stat {
    pub(crate) fn of(device: &str) -> Self {
        let text = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        Self(text.split_whitespace().map(|field| field.parse().unwrap()).collect())
    }

    pub(crate) fn completions(&self, group: Fields) -> u64 {
        self.0[group.completions]
    }

    /// Requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.0[8]
    }

    pub(crate) fn bytes(&self, group: Fields) -> Option<u64> {
        group.sectors.map(|field| self.0[field] * 512)
    }

    pub(crate) fn seconds(&self, group: Fields) -> f64 {
        self.0[group.milliseconds] as f64 / 1e3
    }

    /// I/Os that were merged into other requests.
    pub(crate) fn merged(&self, group: Fields) -> u64 {
        self.0[group.completions + 1]
    }

    /// Completions of all groups.
    pub(crate) fn all_completions(&self) -> u64 {
        GROUPS.iter().map(|&group| self.completions(group)).sum()
    }
}
