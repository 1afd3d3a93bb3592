//! The fleet: its clusters and nodes, and what happens to them.

use std::time::{Duration, SystemTime};

use rand::{RngExt as _, SeedableRng as _};

use super::{Event, Node, Random, Scenario, schedule::Schedule};

/// The largest cluster, and the least number of clusters if there are nodes enough.
const CLUSTER: usize = 25;
const CLUSTERS: usize = 3;

/// Nodes with drives, and what was injected.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    /// The truth, in the order of time.
    pub(crate) events: Vec<Event>,
}

impl Fleet {
    /// So many nodes with so many drives each. All follows from the seed. The nodes are the same in every scenario.
    pub(crate) fn new(
        nodes: usize,
        drives: usize,
        seed: u64,
        scenario: &Scenario,
        start: SystemTime,
        length: Duration,
    ) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let of_cluster = (nodes / CLUSTERS).clamp(1, CLUSTER);
        let mut nodes: Vec<_> = (0..nodes)
            .map(|number| {
                let cluster = format!("c{}", number / of_cluster + 1);
                let name = format!("{cluster}-n{:03}", number % of_cluster + 1);
                Node::new(name, cluster, drives, random.random(), start)
            })
            .collect();
        let events = Schedule::new(&mut nodes, &mut random, start, length).place(scenario);
        Self { nodes, events }
    }
}
