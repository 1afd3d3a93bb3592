//! The oracle: a device's `stat` in sysfs, parsed without the daemon's code.

use std::{fs, sync::LazyLock};

use biolat_probe::btf::Btf;

use super::kernel::{self, Ability};

/// Fields of `/sys/block/<device>/stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stat(Vec<u64>);

/// An op group and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) name: &'static str,
    completions: usize,
    sectors: Option<usize>,
    milliseconds: usize,
}

pub(crate) const READ: Fields = Fields { name: "read", completions: 0, sectors: Some(2), milliseconds: 3 };
pub(crate) const WRITE: Fields = Fields { name: "write", completions: 4, sectors: Some(6), milliseconds: 7 };
pub(crate) const DISCARD: Fields =
    Fields { name: "discard", completions: 11, sectors: Some(13), milliseconds: 14 };
pub(crate) const FLUSH: Fields = Fields { name: "flush", completions: 15, sectors: None, milliseconds: 16 };

pub(crate) const GROUPS: [Fields; 4] = [READ, WRITE, DISCARD, FLUSH];

/// The running kernel's ops, each with the name of the group in which the kernel accounts it.
///
/// <https://github.com/torvalds/linux/blob/v6.12/include/linux/blk_types.h#L481>
static OPS: LazyLock<Vec<(String, &str)>> = LazyLock::new(|| {
    let types = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    let btf = Btf::parse(&types).unwrap();
    let ops = ["req_op", "req_opf"].into_iter().flat_map(|name| btf.enumerators(name));
    let ops = ops.filter_map(|(name, number)| Some((name.strip_prefix("REQ_OP_")?.to_lowercase(), number)));
    let is_accounted = |op: &str| !is_passthrough(op) || kernel::has(Ability::PassthroughStatistics);
    // On some kernels, some zone ops have even numbers and are accounted as reads.
    let group = |op: &str, number| match op {
        "discard" => DISCARD,
        "flush" => FLUSH,
        _ if number % 2 == 1 => WRITE,
        _ => READ,
    };
    ops.filter(|(op, _)| op != "last" && is_accounted(op))
        .map(|(op, number)| {
            let group = group(&op, number).name;
            (op, group)
        })
        .collect()
});

fn is_passthrough(op: &str) -> bool {
    op.starts_with("drv_") || op.starts_with("scsi_")
}

impl Fields {
    /// Returns the ops that the running kernel accounts in this group.
    pub(crate) fn ops(self) -> impl Iterator<Item = &'static str> {
        OPS.iter().filter(move |(_, group)| *group == self.name).map(|(op, _)| op.as_str())
    }

    pub(crate) fn passthrough(self) -> impl Iterator<Item = &'static str> {
        self.ops().filter(|op| is_passthrough(op))
    }
}

impl Stat {
    pub(crate) fn of(device: &str) -> Self {
        let text = fs::read_to_string(format!("/sys/block/{device}/stat")).unwrap();
        Self(text.split_whitespace().map(|field| field.parse().unwrap()).collect())
    }

    /// Whether the kernel accounts this group.
    pub(crate) fn has(&self, group: Fields) -> bool {
        self.0.len() > group.completions
    }

    pub(crate) fn completions(&self, group: Fields) -> u64 {
        self.0[group.completions]
    }

    /// Returns the number of requests in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.0[8]
    }

    pub(crate) fn bytes(&self, group: Fields) -> Option<u64> {
        group.sectors.map(|field| self.0[field] * 512)
    }

    pub(crate) fn seconds(&self, group: Fields) -> f64 {
        self.0[group.milliseconds] as f64 / 1e3
    }

    /// Returns the number of I/Os merged into other requests.
    pub(crate) fn merged(&self, group: Fields) -> u64 {
        self.0[group.completions + 1]
    }

    /// Returns the completions of all groups.
    pub(crate) fn all_completions(&self) -> u64 {
        GROUPS.into_iter().filter(|&group| self.has(group)).map(|group| self.completions(group)).sum()
    }
}
