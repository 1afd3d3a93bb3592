//! The head of an interval's block of sizes and workloads.

use biolat_model::snapshot::Snapshot;

use super::bits::BitReader;

/// What the block contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Breakdown {
    /// Whether workloads are counted. For sizes, each op has its own flag.
    pub(super) has_workloads: bool,
}

impl Breakdown {
    /// `None` if neither is counted.
    pub(super) fn of(snapshot: &Snapshot) -> Option<Self> {
        let has_workloads = snapshot.workloads.is_some();
        let mut series = snapshot.devices.iter().flat_map(|view| &view.series);
        (has_workloads || series.any(|series| series.sizes.is_some())).then_some(Self { has_workloads })
    }
}

/// Reads sizes and workloads.
pub(super) struct BreakdownReader<'a> {
    pub(super) reader: BitReader<'a>,
    pub(super) has_workloads: bool,
}

impl<'a> BreakdownReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut reader = BitReader::new(bytes);
        Self { has_workloads: reader.flag(), reader }
    }
}
