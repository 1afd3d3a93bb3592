//! Which CPUs have counters, and where: see [`biolat_common::slot`]. The CPUs that are online when the probe is loaded are divided
//! into banks by NUMA node, and each bank's counters are on its node. The rows of the first bank are for the CPUs 0, 1, 2 and so
//! on, as long as they are online and on the same node: on most machines these are all CPUs, and the probe finds their counters
//! with one lookup fewer. A CPU that comes online later joins another bank of its node that has a free row, or a new bank. A CPU that
//! goes offline keeps its row.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use aya::maps::{Array, MapData};
use biolat_common::slot::{BANKS, CpuPlace};
use biolat_system::cpus::{CpuNodes, online_cpus};

/// Upper limit on the rows of a bank: up to Linux 5.15, the value of a map has at most 4 MiB.
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
    /// Number of rows in a bank.
    pub rows: u32,
    /// Number of CPUs in the first bank.
    pub first_rows: u32,
    /// Whether the memory of the counters is allocated by NUMA node.
    pub by_node: bool,
}

/// The dimensions that determine the sizes of a probe's maps, apart from its options.
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
        let on_nodes = online.iter().map(|&cpu| Some((nodes.of(cpu)?, cpu))).collect::<Option<Vec<_>>>();
        on_nodes
            .and_then(Self::by_node)
            .unwrap_or_else(|| Self::of_cpus(online.iter().map(|&cpu| (None, cpu as u32)).collect()))
    }

    /// `None` if the CPUs are not on several nodes. aya creates the arrays of the first bank on node 0, so CPU 0 must be there.
    fn by_node(mut cpus: Vec<(u32, usize)>) -> Option<Self> {
        cpus.sort();
        let nodes = cpus.chunk_by(|(node, _), (other, _)| node == other).count();
        let is_by_node = nodes > 1 && nodes < MAX_BANKS / 2 && cpus[0] == (0, 0);
        is_by_node
            .then(|| Self::of_cpus(cpus.into_iter().map(|(node, cpu)| (Some(node), cpu as u32)).collect()))
    }

    /// Divides CPUs, sorted by node, into banks.
    fn of_cpus(cpus: Vec<(Option<u32>, u32)>) -> Self {
        let first_node = cpus.first().and_then(|&(node, _)| node);
        let in_first = (0..).zip(&cpus).take_while(|&(row, &cpu)| cpu == (first_node, row)).count();
        // Room for twice as many CPUs: each node's last bank may have unused rows, and every second CPU may be offline now.
        let rows = in_first.max((2 * cpus.len() - in_first).div_ceil(MAX_BANKS - 1)).clamp(1, MAX_ROWS);
        let (first, others) = cpus.split_at(in_first.min(rows));
        let first = Bank { node: first_node, cpus: first.iter().map(|&(_, cpu)| cpu).collect() };
        let others = others.chunk_by(|(node, _), (other, _)| node == other).flat_map(|of_node| {
            of_node
                .chunks(rows)
                .map(|cpus| Bank { node: cpus[0].0, cpus: cpus.iter().map(|&(_, cpu)| cpu).collect() })
        });
        Self { rows: rows as u32, banks: [first].into_iter().chain(others).collect() }
    }

    /// How many CPUs get room.
    #[must_use]
    pub fn room(&self) -> Room {
        Room {
            banks: self.banks.len() as u32,
            rows: self.rows,
            first_rows: self.banks[0].cpus.len() as u32,
            by_node: self.banks[0].node.is_some(),
        }
    }
}

/// The banks of a loaded probe.
pub(super) struct Banks {
    /// Where the counters of each CPU are.
    places: Array<MapData, u64>,
    rows: u32,
    first_rows: u32,
    by_node: bool,
    banks: Vec<Bank>,
    /// CPUs that have rows which the probe does not use yet.
    waiting: Vec<u32>,
}

impl Banks {
    /// The planned banks. The probe does not use them until [`Self::activate`].
    pub(super) fn of_new_probe(places: Array<MapData, u64>, plan: Plan) -> Self {
        let waiting = plan.banks.iter().flat_map(|bank| bank.cpus.clone()).collect();
        let Room { rows, first_rows, by_node, .. } = plan.room();
        Self { places, rows, first_rows, by_node, banks: plan.banks, waiting }
    }

    /// The banks that an attached probe uses.
    pub(super) fn of_attached_probe(places: Array<MapData, u64>, room: Room, sysfs: &Path) -> Result<Self> {
        let Room { rows, first_rows, by_node, .. } = room;
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
                // The CPUs of a bank may all be offline, and their node unknown. All arrays must have the same flags.
                banks.push(Bank { node: by_node.then_some(0), cpus: Vec::new() });
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
        Ok(Self { places, rows, first_rows, by_node, banks, waiting: Vec::new() })
    }

    /// The banks by number.
    pub(super) fn all(&self) -> &[Bank] {
        &self.banks
    }

    /// One more than the highest number of a possible CPU.
    pub(super) fn cpu_ids(&self) -> usize {
        self.places.len() as usize
    }

    pub(super) fn room(&self) -> Room {
        Room {
            banks: self.banks.len() as u32,
            rows: self.rows,
            first_rows: self.first_rows,
            by_node: self.by_node,
        }
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
            let node = self.by_node.then(|| nodes.of(cpu as usize).unwrap_or(0));
            let has_room =
                |(number, bank): &(usize, &Bank)| *number > 0 && bank.cpus.len() < self.rows as usize;
            let with_room = || self.banks.iter().enumerate().filter(has_room);
            let of_node = with_room().find(|(_, bank)| bank.node == node);
            // If there can be no more banks, on another node rather than not at all.
            let is_full = self.banks.len() == MAX_BANKS;
            let of_any = || with_room().next().filter(|_| is_full);
            match of_node.or_else(of_any).map(|(number, _)| number) {
                Some(number) => self.banks[number].cpus.push(cpu),
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

    fn bank(node: Option<u32>, cpus: &[u32]) -> Bank {
        Bank { node, cpus: cpus.to_vec() }
    }

    #[test]
    fn first_cpus_are_in_first_bank() {
        let expected = Plan { rows: 2, banks: vec![bank(None, &[0, 1]), bank(None, &[5])] };
        assert_eq!(Plan::new(&[0, 1, 5], &nodes(&[0; 8])), expected);
        assert_eq!(Plan::new(&[0, 1, 5], &CpuNodes::default()), expected);
        assert_eq!(expected.room(), Room { banks: 2, rows: 2, first_rows: 2, by_node: false });
        let all: Vec<_> = (0..4).collect();
        let expected = Plan { rows: 4, banks: vec![bank(None, &[0, 1, 2, 3])] };
        assert_eq!(Plan::new(&all, &nodes(&[0; 4])), expected);
    }

    /// Without simultaneous multithreading, every second CPU may be offline.
    #[test]
    fn first_bank_may_be_nearly_empty() {
        let online: Vec<_> = (0..128).step_by(2).collect();
        let room = Plan::new(&online, &nodes(&[0; 128])).room();
        assert_eq!(room, Room { banks: 14, rows: 5, first_rows: 1, by_node: false });
        let plan = Plan::new(&[1, 2], &nodes(&[0; 3]));
        assert_eq!(plan, Plan { rows: 1, banks: vec![bank(None, &[]), bank(None, &[1]), bank(None, &[2])] });
    }

    #[test]
    fn banks_are_on_one_node() {
        let plan = Plan::new(&[0, 1, 2, 3, 5], &nodes(&[0, 0, 4, 0, 4, 4]));
        let banks = vec![bank(Some(0), &[0, 1]), bank(Some(0), &[3]), bank(Some(4), &[2, 5])];
        assert_eq!(plan, Plan { rows: 2, banks });
        assert_eq!(plan.room(), Room { banks: 3, rows: 2, first_rows: 2, by_node: true });
        assert_eq!(plan.room().cpus(), 6);
        assert!(!Plan::new(&[0, 1], &nodes(&[1, 2])).room().by_node, "without node 0");
    }

    #[test]
    fn large_nodes_have_several_banks() {
        let online: Vec<_> = (0..1024).collect();
        let room = Plan::new(&online, &CpuNodes::default()).room();
        assert_eq!(room, Room { banks: 2, rows: 512, first_rows: 512, by_node: false });
        let alternating: Vec<_> = (0..384).map(|cpu| cpu % 2).collect();
        let online: Vec<_> = (0..384).collect();
        let room = Plan::new(&online, &nodes(&alternating)).room();
        assert_eq!(room, Room { banks: 17, rows: 25, first_rows: 1, by_node: true });
        let many: Vec<_> = (0..40).collect();
        let room = Plan::new(&many, &nodes(&(0..40).collect::<Vec<_>>())).room();
        assert_eq!(room, Room { banks: 1, rows: 40, first_rows: 40, by_node: false }, "too many nodes");
    }
}
