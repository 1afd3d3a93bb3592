//! Which CPUs have counters, and where: see [`biolat_common::slot`]. The CPUs that are online when the probe is loaded are divided
//! into banks by NUMA node, and each bank's counters are on its node. A CPU that comes online later joins a bank of its node that
//! has a free row, or a new bank. A CPU that goes offline keeps its row.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, MapData};
use biolat_common::slot::{BANKS, CpuPlace};
use biolat_system::cpus::{CpuNodes, online_cpus};

/// Upper limit on the CPUs in a bank: up to Linux 5.15, the value of a map has at most 4 MiB.
const MAX_ROWS: usize = 512;

const MAX_BANKS: usize = BANKS as usize;

/// The CPUs that share arrays of counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bank {
    /// The NUMA node of its memory, if the machine has several.
    pub(super) node: Option<u32>,
    /// The CPU of each row in use.
    pub(super) cpus: Vec<u32>,
}

/// How many CPUs have room for counters, when a probe is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Number of banks.
    pub banks: u32,
    /// Number of CPUs in a bank.
    pub rows: u32,
    /// Whether the memory of the counters is allocated by NUMA node.
    pub by_node: bool,
}

/// What the sizes of a probe's maps depend on, apart from its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimensions {
    /// Number of slots that it was loaded with.
    pub slots: u32,
    /// The room for CPUs that it was loaded with.
    pub room: Room,
}

impl Room {
    /// Number of CPUs that have room.
    #[must_use]
    pub fn cpus(self) -> u64 {
        u64::from(self.banks) * u64::from(self.rows)
    }
}

/// The banks for the CPUs that are online.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    rows: u32,
    banks: Vec<Bank>,
}

impl Plan {
    /// Reads which CPUs are online. If that is unknown, all possible CPUs get counters.
    pub fn of_host(sysfs: &Path) -> Result<Self> {
        let online = match online_cpus(sysfs) {
            Some(online) => online,
            None => (0..super::cpus::in_sysfs()?).collect(),
        };
        Ok(Self::new(&online, &CpuNodes::read(sysfs)))
    }

    fn new(online: &[usize], nodes: &CpuNodes) -> Self {
        Self::by_node(online, nodes)
            .filter(|plan| plan.banks.len() <= MAX_BANKS)
            .unwrap_or_else(|| Self::of_groups(vec![(None, online.to_vec())]))
    }

    /// `None` if the CPUs are not on several nodes. aya creates the arrays of the first bank on node 0, so there must be one.
    fn by_node(online: &[usize], nodes: &CpuNodes) -> Option<Self> {
        let mut groups: Vec<(Option<u32>, Vec<usize>)> = Vec::new();
        for &cpu in online {
            let node = Some(nodes.of(cpu)?);
            match groups.iter_mut().find(|group| group.0 == node) {
                Some((_, cpus)) => cpus.push(cpu),
                None => groups.push((node, vec![cpu])),
            }
        }
        groups.sort();
        let is_by_node = groups.len() > 1 && groups[0].0 == Some(0);
        is_by_node.then(|| Self::of_groups(groups))
    }

    fn of_groups(groups: Vec<(Option<u32>, Vec<usize>)>) -> Self {
        let largest = groups.iter().map(|(_, cpus)| cpus.len()).max().unwrap_or(1);
        let rows = largest.clamp(1, MAX_ROWS);
        let banks = groups.iter().flat_map(|(node, cpus)| {
            cpus.chunks(rows)
                .map(|cpus| Bank { node: *node, cpus: cpus.iter().map(|&cpu| cpu as u32).collect() })
        });
        Self { rows: rows as u32, banks: banks.collect() }
    }

    /// How many CPUs get room.
    #[must_use]
    pub fn room(&self) -> Room {
        let by_node = self.banks.iter().any(|bank| bank.node.is_some());
        Room { banks: self.banks.len() as u32, rows: self.rows, by_node }
    }
}

/// The banks of a loaded probe.
pub(super) struct Banks {
    /// Where the counters of each CPU are.
    places: Array<MapData, u64>,
    rows: u32,
    by_node: bool,
    banks: Vec<Bank>,
    /// CPUs that have rows which the probe does not use yet.
    waiting: Vec<u32>,
}

impl Banks {
    /// The planned banks. The probe does not use them until [`Self::activate`].
    pub(super) fn of_new_probe(places: Array<MapData, u64>, plan: Plan) -> Self {
        let waiting = plan.banks.iter().flat_map(|bank| bank.cpus.clone()).collect();
        let Room { rows, by_node, .. } = plan.room();
        Self { places, rows, by_node, banks: plan.banks, waiting }
    }

    /// The banks that an attached probe uses.
    pub(super) fn of_attached_probe(places: Array<MapData, u64>, room: Room, sysfs: &Path) -> Result<Self> {
        let Room { rows, by_node, .. } = room;
        let nodes = CpuNodes::read(sysfs);
        let mut banks: Vec<Bank> = Vec::new();
        for cpu in 0..places.len() {
            let place =
                CpuPlace::from_bits(places.get(&cpu, 0).context("cannot read the places of the CPUs")?);
            if place == CpuPlace::NONE {
                continue;
            }
            let (bank, row) = (place.bank() as usize, place.row() as usize);
            ensure!(bank < MAX_BANKS && row < rows as usize, "CPU {cpu} has an impossible place");
            while banks.len() <= bank {
                banks.push(Bank { node: None, cpus: Vec::new() });
            }
            let bank = &mut banks[bank];
            if by_node {
                bank.node = nodes.of(cpu as usize).or(bank.node);
            }
            if bank.cpus.len() <= row {
                bank.cpus.resize(row + 1, u32::MAX);
            }
            bank.cpus[row] = cpu;
        }
        Ok(Self { places, rows, by_node, banks, waiting: Vec::new() })
    }

    /// The banks by number.
    pub(super) fn all(&self) -> &[Bank] {
        &self.banks
    }

    pub(super) fn room(&self) -> Room {
        Room { banks: self.banks.len() as u32, rows: self.rows, by_node: self.by_node }
    }

    /// Whether a CPU has no row yet.
    pub(super) fn lacks(&self, cpus: &[usize]) -> bool {
        cpus.iter().any(|&cpu| !self.has(cpu as u32))
    }

    fn has(&self, cpu: u32) -> bool {
        self.banks.iter().any(|bank| bank.cpus.contains(&cpu))
    }

    /// Gives rows to the CPUs that have none. The probe does not use them until [`Self::activate`].
    pub(super) fn add(&mut self, cpus: &[usize], nodes: &CpuNodes) {
        for cpu in cpus.iter().map(|&cpu| cpu as u32) {
            if self.has(cpu) || cpu >= self.places.len() {
                continue;
            }
            let node = nodes.of(cpu as usize).filter(|_| self.by_node);
            let has_room = |bank: &Bank| bank.cpus.len() < self.rows as usize;
            let of_node = self.banks.iter().position(|bank| bank.node == node && has_room(bank));
            // If there can be no more banks, on another node rather than not at all.
            let is_full = self.banks.len() == MAX_BANKS;
            let of_any = || self.banks.iter().position(has_room).filter(|_| is_full);
            match of_node.or_else(of_any) {
                Some(place) => self.banks[place].cpus.push(cpu),
                None if is_full => continue,
                None => self.banks.push(Bank { node, cpus: vec![cpu] }),
            }
            self.waiting.push(cpu);
        }
    }

    /// Whether there are rows that the probe does not use yet.
    pub(super) fn are_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Lets the probe use all rows. Their arrays must have been added.
    pub(super) fn activate(&mut self) -> Result<()> {
        while let Some(&cpu) = self.waiting.last() {
            let (bank, row) = self.place(cpu).context("a CPU has no row")?;
            let place = CpuPlace::new(bank as u32, row as u32);
            self.places
                .set(cpu, place.bits(), 0)
                .with_context(|| format!("cannot add counters for CPU {cpu}"))?;
            self.waiting.pop();
        }
        Ok(())
    }

    fn place(&self, cpu: u32) -> Option<(usize, usize)> {
        let row = |bank: &Bank| bank.cpus.iter().position(|&other| other == cpu);
        self.banks.iter().enumerate().find_map(|(number, bank)| Some((number, row(bank)?)))
    }
}

#[cfg(test)]
mod tests {
    use biolat_system::cpus::CpuNodes;

    use super::{Bank, Plan, Room};

    fn nodes(of_cpus: &[u32]) -> CpuNodes {
        CpuNodes(of_cpus.iter().copied().enumerate().collect())
    }

    #[test]
    fn one_node_is_one_bank() {
        let expected = Plan { rows: 3, banks: vec![Bank { node: None, cpus: vec![0, 1, 5] }] };
        assert_eq!(Plan::new(&[0, 1, 5], &nodes(&[0; 8])), expected);
        assert_eq!(Plan::new(&[0, 1, 5], &CpuNodes::default()), expected);
    }

    #[test]
    fn each_node_has_banks_of_the_same_size() {
        let plan = Plan::new(&[0, 1, 2, 3, 5], &nodes(&[0, 0, 4, 0, 4, 4]));
        let bank = |node, cpus: &[u32]| Bank { node: Some(node), cpus: cpus.to_vec() };
        assert_eq!(plan, Plan { rows: 3, banks: vec![bank(0, &[0, 1, 3]), bank(4, &[2, 5])] });
        assert_eq!(plan.room(), Room { banks: 2, rows: 3, by_node: true });
        assert_eq!(plan.room().cpus(), 6);
        assert!(!Plan::new(&[0, 1], &nodes(&[1, 2])).room().by_node, "without node 0");
    }

    #[test]
    fn large_nodes_have_several_banks() {
        let online: Vec<_> = (0..1024).collect();
        assert_eq!(
            Plan::new(&online, &CpuNodes::default()).room(),
            Room { banks: 2, rows: 512, by_node: false }
        );
        let many: Vec<_> = (0..40).collect();
        assert_eq!(
            Plan::new(&many, &nodes(&(0..40).collect::<Vec<_>>())).room(),
            Room { banks: 1, rows: 40, by_node: false },
            "too many nodes"
        );
    }
}
