//! Online CPUs and their NUMA nodes.

use std::{collections::BTreeMap, fs, path::Path};

/// NUMA node of each CPU; empty if the kernel has no NUMA information.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuNodes(pub BTreeMap<usize, u32>);

impl CpuNodes {
    pub fn read(sysfs: &Path) -> Self {
        let folder = sysfs.join("devices/system/node");
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let nodes = entries.filter_map(|entry| {
            let node: u32 = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((node, fs::read_to_string(entry.path().join("cpulist")).ok()?))
        });
        let cpus = nodes.flat_map(|(node, list)| {
            cpu_list(&list).into_iter().map(move |cpu| (cpu, node)).collect::<Vec<_>>()
        });
        Self(cpus.collect())
    }

    pub fn of(&self, cpu: usize) -> Option<u32> {
        self.0.get(&cpu).copied()
    }

    /// Whether no nodes are known.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the CPUs are on more than one node.
    pub fn are_several(&self) -> bool {
        let mut nodes = self.0.values();
        nodes.next().is_some_and(|first| nodes.any(|node| node != first))
    }
}

/// Returns the online CPUs, or `None` if they cannot be read.
pub fn online_cpus(sysfs: &Path) -> Option<Vec<usize>> {
    let list = fs::read_to_string(sysfs.join("devices/system/cpu/online")).ok()?;
    Some(cpu_list(&list)).filter(|cpus| !cpus.is_empty())
}

/// Parses a list of CPUs such as `0-3,8`.
fn cpu_list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::{path::Path, thread};

    use biolat_testing::Tree;

    use super::{CpuNodes, cpu_list, online_cpus};

    #[test]
    fn parses_cpu_lists() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert!(cpu_list("\n").is_empty());
        assert_eq!(cpu_list("x,3-,4"), [4]);
    }

    #[test]
    fn reads_online_cpus() {
        let available = thread::available_parallelism().unwrap().get();
        assert!(online_cpus(Path::new("/sys")).unwrap().len() >= available);
        assert_eq!(online_cpus(Path::new("/nothing")), None);
    }

    #[test]
    fn reads_nodes_from_sysfs() {
        let tree = Tree::new("nodes", &[]);
        tree.write("devices/system/node/node0/cpulist", b"0,2\n");
        let one = CpuNodes::read(&tree.0);
        assert!(!one.is_empty() && !one.are_several());
        tree.write("devices/system/node/node1/cpulist", b"1,3\n");
        let two = CpuNodes::read(&tree.0);
        assert_eq!((two.of(2), two.of(3), two.of(4), two.are_several()), (Some(0), Some(1), None, true));
        assert!(CpuNodes::read(&tree.0.join("none")).is_empty());
    }
}
