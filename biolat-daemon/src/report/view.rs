//! Which histograms a window is shown as: one for all, or for each device, each op, or both.

use std::collections::BTreeMap;

use biolat_common::series::Phase;

use super::{
    options::Options,
    window::{Device, Figures, Window},
};

/// What is wanted to be seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// A block for each device.
    pub by_device: bool,
    /// A block for each op.
    pub by_op: bool,
    /// Which latencies.
    pub phases: Vec<Phase>,
}

/// One histogram, or several side by side, and what belongs to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Block<'a> {
    /// Whose, if it is one device's.
    pub device: Option<&'a Device>,
    /// Of which op, if it is of one.
    pub op: Option<&'a str>,
    /// What happened.
    pub figures: Figures,
    /// Completions that the probe was not run for, by group of ops.
    pub unseen: BTreeMap<String, u64>,
}

impl View {
    /// As the options want it.
    #[must_use]
    pub fn of(options: &Options) -> Self {
        let phases = match (options.phases, options.queued) {
            (true, _) => Phase::ALL.to_vec(),
            (false, true) => vec![Phase::Total],
            (false, false) => vec![Phase::Device],
        };
        Self { by_device: options.by_device, by_op: options.by_op, phases }
    }

    /// The blocks of a window in which something happened, and the one of everything in any case.
    #[must_use]
    pub fn blocks<'a>(&self, window: &'a Window) -> Vec<Block<'a>> {
        let groups: Vec<(Option<&Device>, Vec<&Device>)> = if self.by_device {
            window.devices.iter().map(|device| (Some(device), vec![device])).collect()
        } else {
            vec![(None, window.devices.iter().collect())]
        };
        let mut blocks = Vec::new();
        for (device, members) in groups {
            let unseen = |groups: &[&str]| {
                let mut unseen = BTreeMap::new();
                for (group, count) in members.iter().flat_map(|member| &member.unseen) {
                    if groups.is_empty() || groups.contains(&group.as_str()) {
                        *unseen.entry(group.clone()).or_default() += count;
                    }
                }
                unseen
            };
            if !self.by_op {
                let mut figures = Figures::default();
                for member in &members {
                    figures += &member.all();
                }
                blocks.push(Block { device, op: None, figures, unseen: unseen(&[]) });
                continue;
            }
            let mut ops: BTreeMap<&str, Figures> = BTreeMap::new();
            for op in members.iter().flat_map(|member| &member.ops) {
                *ops.entry(&op.name).or_default() += &op.figures;
            }
            // A group that has no op here to stand with is not left out.
            for group in members.iter().flat_map(|member| member.unseen.keys()) {
                ops.entry(group).or_default();
            }
            blocks.extend(ops.into_iter().map(|(op, figures)| Block {
                device,
                op: Some(op),
                figures,
                unseen: unseen(&[op]),
            }));
        }
        let is_whole = !self.by_device && !self.by_op;
        blocks.retain(|block| is_whole || block.is_busy());
        blocks
    }
}

impl Block<'_> {
    /// Whether there is anything to tell.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.figures.ios() > 0 || !self.unseen.is_empty() || self.figures.failed() > 0
    }

    /// What it is of, in words: `vda read`, `every device and op`.
    #[must_use]
    pub fn name(&self) -> String {
        match (self.device, self.op) {
            (None, None) => "every device and op".to_owned(),
            (None, Some(op)) => format!("{op} on every device"),
            (Some(device), None) => device.name.clone(),
            (Some(device), Some(op)) => format!("{} {op}", device.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use biolat_common::series::Phase;

    use super::View;
    use crate::report::{samples, window::Window};

    fn window() -> Window {
        let op = |name: &str, count| {
            let total = samples::histogram(0, &[(-80, count)], 0, 1.0);
            samples::op(name, 4096, total.clone(), total.clone(), total)
        };
        let mut sda = samples::device("sda", 9.0, vec![op("read", 3), op("write", 0), op("flush", 1)]);
        sda.unseen.insert("discard".into(), 2);
        let sdb = samples::device("sdb", 9.0, vec![op("read", 5)]);
        let quiet = samples::device("sdc", 9.0, vec![op("read", 0)]);
        Window::between(&samples::snapshot(1.0, vec![]), &samples::snapshot(2.0, vec![sda, sdb, quiet]))
    }

    fn blocks(by_device: bool, by_op: bool) -> Vec<(String, u64, u64)> {
        let window = window();
        let view = View { by_device, by_op, phases: vec![Phase::Device] };
        let told = view.blocks(&window);
        told.iter().map(|block| (block.name(), block.figures.ios(), block.unseen.values().sum())).collect()
    }

    #[test]
    fn one_for_each_that_has_something_to_tell() {
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
}
