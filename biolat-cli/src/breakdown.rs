//! How a window is broken down: one histogram for all I/O, or one for each device or volume, each op, or both.

use std::collections::BTreeMap;

use biolat_common::series::Phase;
use biolat_model::{device::Group, saturating::add, snapshot::Inflight};
use biolat_system::cpus::CpuNodes;

use super::{
    claims::{self, Claim},
    options::By,
    window::{DeviceWindow, Figures, Window},
};

/// Why the workloads are unknown.
pub(super) const NO_WORKLOADS: &str = "no workloads are counted there: that biolat-daemon runs with --workloads off, or its \
                                       kernel does not record the cgroup of an I/O";

const NO_VOLUMES: &str =
    "no volumes are measured there: the host has none, or its biolat-daemon runs with --volumes off";

const NO_CLAIMS: &str =
    "no persistent volume is mounted from these drives (in a pod, the chart's volumeNames shows them)";

/// The parts of a window that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Breakdown {
    /// What gets a block of its own. `None` for a single block.
    pub(super) by: Option<By>,
    /// A block for each op.
    pub(super) by_op: bool,
    /// The latencies to show.
    pub(super) phases: Vec<Phase>,
    /// Tables by size, which replace the histograms in text.
    pub(super) sizes: bool,
    /// Completions by CPU, which also replace the histograms. In text, the completions are grouped by these NUMA nodes if there
    /// is more than one.
    pub(super) cpus: Option<CpuNodes>,
    /// Tables by workload, which also replace the histograms.
    pub(super) who: bool,
}

/// One histogram, or several side by side, and the figures that go with it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Block<'a> {
    /// `None` for all devices or a claim's.
    pub(super) device: Option<&'a DeviceWindow>,
    /// How many devices are below it: 0 for a drive.
    pub(super) depth: u32,
    /// `None` if it is not for a claim.
    pub(super) claim: Option<Claim<'a>>,
    /// `None` for all ops.
    pub(super) op: Option<&'a str>,
    /// Figures of the block.
    pub(super) figures: Figures,
    /// Missed completions, by group of ops.
    pub(super) unseen: BTreeMap<Group, u64>,
    /// I/Os in flight. `None` if the block is for one op.
    pub(super) inflight: Option<Inflight>,
}

impl Breakdown {
    /// Whether tables replace the histograms.
    pub(super) fn has_tables(&self) -> bool {
        self.sizes || self.cpus.is_some() || self.who
    }

    /// The requested figures that the daemon does not count, in words.
    pub(super) fn missing(&self, window: &Window) -> Option<&'static str> {
        let mut ops = window.devices.iter().flat_map(|device| &device.ops).peekable();
        let without_sizes = ops.peek().is_some() && ops.all(|op| op.sizes.is_none());
        let has_completions = window.devices.iter().any(|device| device.completions.is_some());
        // Before its first I/O, a device may have no list of completions.
        let without_cpus = !has_completions && window.devices.iter().any(|device| device.all().ios() > 0);
        let is_without_workloads = |device: &DeviceWindow| device.workloads.is_none();
        let without_workloads = !window.devices.is_empty() && window.devices.iter().all(is_without_workloads);
        if self.sizes && without_sizes {
            Some("no sizes are counted there: that biolat-daemon runs with --sizes off")
        } else if self.cpus.is_some() && without_cpus {
            Some("completions by CPU are unknown there")
        } else if self.who && without_workloads {
            Some(NO_WORKLOADS)
        } else if self.by == Some(By::Volume) && window.volumes.is_empty() {
            Some(NO_VOLUMES)
        } else if self.by == Some(By::Claim) && claims::of(window).is_empty() {
            Some(NO_CLAIMS)
        } else {
            None
        }
    }

    /// Blocks with activity. The block for everything is always included.
    pub(super) fn blocks<'a>(&self, window: &'a Window) -> Vec<Block<'a>> {
        type Part<'a> = (Option<&'a DeviceWindow>, u32, Option<Claim<'a>>, Vec<&'a DeviceWindow>);
        let layers = || window.layers().into_iter();
        let block = |(device, depth)| (Some(device), depth, None, vec![device]);
        // If only volumes are selected, they are what is asked for.
        let has_volumes_only = window.devices.is_empty() && !window.volumes.is_empty();
        let by = self.by.or(has_volumes_only.then_some(By::Volume));
        let parts: Vec<Part<'a>> = match by {
            Some(By::Claim) => {
                let claims = claims::of(window).into_iter();
                claims.map(|claim| (None, 0, Some(claim.clone()), claim.devices)).collect()
            }
            Some(By::Device) => layers().map(block).collect(),
            Some(By::Volume) => layers()
                .filter(|(device, _)| device.volume.is_some())
                .map(|(device, _)| block((device, 0)))
                .collect(),
            None => vec![(None, 0, None, window.devices.iter().collect())],
        };
        let mut blocks = Vec::new();
        for (device, depth, claim, members) in parts {
            let unseen = |op: Option<&str>| {
                let mut unseen = BTreeMap::new();
                let all = members.iter().flat_map(|member| &member.unseen);
                for (group, count) in all.filter(|(group, _)| op.is_none_or(|op| op == group.name())) {
                    add(unseen.entry(*group).or_default(), *count);
                }
                unseen
            };
            if !self.by_op {
                let mut figures = Figures::default();
                for member in &members {
                    figures += &member.all();
                }
                let inflight = members.iter().map(|member| member.inflight).reduce(both);
                blocks.push(Block {
                    device,
                    depth,
                    claim,
                    op: None,
                    figures,
                    unseen: unseen(None),
                    inflight,
                });
                continue;
            }
            let mut ops: BTreeMap<&str, Figures> = BTreeMap::new();
            for op in members.iter().flat_map(|member| &member.ops) {
                *ops.entry(&op.name).or_default() += &op.figures;
            }
            // A group gets a block even if no op has its name.
            for group in members.iter().flat_map(|member| member.unseen.keys()) {
                ops.entry(group.name()).or_default();
            }
            blocks.extend(ops.into_iter().map(|(op, figures)| Block {
                device,
                depth,
                claim: claim.clone(),
                op: Some(op),
                figures,
                unseen: unseen(Some(op)),
                inflight: None,
            }));
        }
        let is_whole = by.is_none() && !self.by_op;
        blocks.retain(|block| is_whole || block.is_busy());
        blocks
    }
}

impl Block<'_> {
    /// Whether anything happened.
    pub(super) fn is_busy(&self) -> bool {
        self.figures.ios() > 0
            || !self.unseen.is_empty()
            || self.figures.failed() > 0
            || self.inflight.is_some_and(|inflight| !inflight.is_none())
    }

    /// Whether the latency of a phase is recorded for its device, or for any device.
    pub(super) fn has(&self, phase: Phase, window: &Window) -> bool {
        self.devices(window).iter().any(|device| device.has(phase))
    }

    /// The devices whose figures it adds up.
    pub(super) fn devices<'w>(&self, window: &'w Window) -> Vec<&'w DeviceWindow>
    where
        Self: 'w,
    {
        match (self.device, &self.claim) {
            (Some(device), _) => vec![device],
            (None, Some(claim)) => claim.devices.clone(),
            (None, None) => window.devices.iter().collect(),
        }
    }

    /// Name in words: `vda read`, `every device and op`.
    pub(super) fn name(&self) -> String {
        if let Some(claim) = &self.claim {
            return self.op.map_or_else(|| claim.volume.to_owned(), |op| format!("{} {op}", claim.volume));
        }
        match (self.device, self.op) {
            (None, None) => "every device and op".to_owned(),
            (None, Some(op)) => format!("{op} on every device"),
            (Some(device), None) => device.name.clone(),
            (Some(device), Some(op)) => format!("{} {op}", device.name),
        }
    }
}

/// Adds up the I/Os in flight of two devices.
fn both(one: Inflight, other: Inflight) -> Inflight {
    let older = if one.oldest >= other.oldest { one } else { other };
    Inflight {
        reads: one.reads.saturating_add(other.reads),
        writes: one.writes.saturating_add(other.writes),
        ..older
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use biolat_common::series::Phase;
    use biolat_model::{device::Group, snapshot::Inflight};
    use biolat_testing::samples;

    use super::Breakdown;
    use crate::options::By;
    use crate::window::Window;

    fn window() -> Window {
        let op = |name: &str, count| {
            let total = samples::histogram(0, &[(-80, count)], 0, 1.0);
            samples::op(name, 4096, total.clone(), total.clone(), total)
        };
        let mut sda = samples::device("sda", 9.0, vec![op("read", 3), op("write", 0), op("flush", 1)]);
        sda.unseen.insert(Group::Discard, 2);
        let sdb = samples::device("sdb", 9.0, vec![op("read", 5)]);
        let quiet = samples::device("sdc", 9.0, vec![op("read", 0)]);
        Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(2.0, vec![sda, sdb, quiet]))
    }

    fn blocks(by_device: bool, by_op: bool) -> Vec<(String, u64, u64)> {
        let window = window();
        let by = by_device.then_some(By::Device);
        let breakdown = Breakdown { by, by_op, phases: vec![Phase::Device], ..Breakdown::default() };
        let blocks = breakdown.blocks(&window);
        blocks.iter().map(|block| (block.name(), block.figures.ios(), block.unseen.values().sum())).collect()
    }

    #[test]
    fn each_busy_group_has_a_block() {
        assert_eq!(blocks(false, false), [("every device and op".into(), 9, 2)]);
        assert_eq!(blocks(true, false), [("sda".into(), 4, 2), ("sdb".into(), 5, 0)]);
        assert_eq!(
            blocks(false, true),
            [
                ("discard on every device".into(), 0, 2),
                ("flush on every device".into(), 1, 0),
                ("read on every device".into(), 8, 0)
            ]
        );
        let each = blocks(true, true);
        let names: Vec<_> = each.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(names, ["sda discard", "sda flush", "sda read", "sdb read"]);
        assert_eq!(each.iter().map(|(_, ios, _)| ios).sum::<u64>(), 9);
    }

    /// A hung device completes nothing.
    #[test]
    fn ios_in_flight_count_as_activity() {
        let mut window = window();
        let inflight = |read, oldest_seconds, exact| {
            let oldest = Duration::from_secs_f64(oldest_seconds);
            Inflight { reads: read, writes: 2, oldest, is_exact: exact }
        };
        window.devices[1].inflight = inflight(1, 0.5, true);
        window.devices[2].inflight = inflight(4, 16.0, false);
        let of = |by_device: bool| {
            let by = by_device.then_some(By::Device);
            let breakdown = Breakdown { by, phases: vec![Phase::Device], ..Breakdown::default() };
            let blocks = breakdown.blocks(&window).into_iter();
            blocks.map(|block| (block.name(), block.inflight)).collect::<Vec<_>>()
        };
        let all =
            Some(Inflight { reads: 5, writes: 4, oldest: Duration::from_secs_f64(16.0), is_exact: false });
        assert_eq!(of(false), [("every device and op".into(), all)]);
        let each: Vec<_> =
            of(true).into_iter().map(|(name, inflight)| (name, inflight.unwrap().is_none())).collect();
        assert_eq!(each, [("sda".into(), true), ("sdb".into(), false), ("sdc".into(), false)]);
    }
}
