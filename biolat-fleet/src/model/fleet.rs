//! Models a fleet: clusters, nodes and the injected events.

use std::time::{Duration, SystemTime};

use rand::{RngExt as _, SeedableRng as _};

use super::{Event, Node, Random, Scenario, schedule::Schedule};

/// Maximum number of nodes in a cluster.
const MAX_CLUSTER_NODES: usize = 25;
/// Minimum number of clusters, given enough nodes.
const MIN_CLUSTERS: usize = 3;

/// Nodes with drives, and the injected events.
pub(crate) struct Fleet {
    pub(crate) nodes: Vec<Node>,
    /// The ground truth, in chronological order.
    pub(crate) events: Vec<Event>,
}

impl Fleet {
    /// Creates a fleet of `nodes` with `drives` each. Everything follows from the seed. The nodes are the same in every scenario.
    pub(crate) fn new(
        nodes: usize,
        drives: usize,
        seed: u64,
        scenario: &Scenario,
        start: SystemTime,
        length: Duration,
    ) -> Self {
        let mut random = Random::seed_from_u64(seed);
        let of_cluster = (nodes / MIN_CLUSTERS).clamp(1, MAX_CLUSTER_NODES);
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
