//! The CPUs on which I/O completes: a bar for each, by device.

use std::{collections::BTreeMap, fmt::Write as _};

use biolat_model::{saturating::sum, text::format};
use biolat_system::cpus::CpuNodes;
use biolat_system::terminal::wrapped;

use super::{INDENT, TextStyle, full_device_name};
use crate::window::Window;

/// Longest bar, in characters.
const LONGEST_BAR: usize = 40;

impl TextStyle {
    /// The table of each device with completions.
    pub(super) fn cpu_tables(&self, window: &Window, nodes: &CpuNodes) -> Vec<String> {
        let tables = window.devices.iter().filter_map(|device| {
            let counts = device.completions.as_ref()?;
            let busy: Vec<_> = counts.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
            if busy.is_empty() {
                return None;
            }
            let mut text = String::new();
            self.title(&mut text, &format!("{}: completions by CPU", full_device_name(device)));
            self.cpus(&mut text, &busy, nodes, window);
            Some(text)
        });
        tables.collect()
    }

    fn cpus(&self, text: &mut String, busy: &[(usize, u64)], nodes: &CpuNodes, window: &Window) {
        let all = sum(busy.iter().map(|(_, count)| count));
        let highest = busy.iter().map(|(_, count)| *count).max().unwrap_or_default().max(1);
        let number = busy.last().map_or(1, |(cpu, _)| cpu.to_string().len());
        let width = format::count(highest).len();
        // "CPU ", a share of five characters, and the gaps.
        let left = INDENT + 4 + number + 2 + width + 2 + 5 + 1;
        let bar = self.width.saturating_sub(left).min(LONGEST_BAR);
        let share = |count: u64| count as f64 / all as f64;
        let mut by_node: BTreeMap<Option<u32>, Vec<(usize, u64)>> = BTreeMap::new();
        for &(cpu, count) in busy {
            let node = if nodes.are_several() { nodes.of(cpu) } else { None };
            by_node.entry(node).or_default().push((cpu, count));
        }
        for (node, cpus) in by_node {
            if let Some(node) = node {
                let of_node = sum(cpus.iter().map(|(_, count)| count));
                let _ = writeln!(text, "{:INDENT$}NUMA node {node}: {}", "", format::share(share(of_node)));
            }
            for (cpu, count) in cpus {
                let bar = self.terminal.bar(count as f64 / highest as f64, bar, false);
                let (count, share) = (format::count(count), format::share(share(count)));
                let line = format!("CPU {cpu:>number$}  {count:>width$}  {share:>5} {bar}");
                let _ = writeln!(text, "{:INDENT$}{}", "", line.trim_end());
            }
        }
        let line = format!(
            "{} requests in {}, {}/s, effective CPUs {:.1} (1 / sum of squared shares)",
            format::count(all),
            format::duration(window.seconds),
            format::rate(window.rate(all)),
            effective(busy.iter().map(|(_, count)| *count))
        );
        let _ = writeln!(text, "{:INDENT$}{}", "", wrapped(&line, self.width, INDENT));
    }
}

/// The number of CPUs that would share the completions evenly.
fn effective(counts: impl Iterator<Item = u64> + Clone) -> f64 {
    let all = counts.clone().map(|count| count as f64).sum::<f64>();
    1.0 / counts.map(|count| (count as f64 / all).powi(2)).sum::<f64>()
}
