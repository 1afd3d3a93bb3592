//! The cost of recording a collection of eight busy drives: its own interval and its share of merging.
//! Instructions: `valgrind --tool=callgrind --toggle-collect='*recorded*' TEST-BINARY --ignored tests::cost`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use biolat_model::snapshot::Snapshot;
use rand::{RngExt as _, SeedableRng as _, rngs::SmallRng};

use super::{
    drives::{count_sizes_and_workloads, reads_and_writes},
    host::TestHost,
    store_of,
};
use crate::Store;

#[inline(never)]
fn recorded(store: &mut Store, snapshot: &Arc<Snapshot>, at: Duration) -> Duration {
    let began = Instant::now();
    store.record(snapshot, at);
    began.elapsed()
}

fn cost(has_breakdown: bool) {
    const DRIVES: usize = 8;
    let names: Vec<_> = (0..DRIVES).map(|number| format!("nvme{number:02}n1")).collect();
    let mut host = TestHost::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    if has_breakdown {
        count_sizes_and_workloads(&mut host);
    }
    let (mut random, mut store) = (SmallRng::seed_from_u64(19), store_of(16 << 20));
    let ops = reads_and_writes(5.0, &mut random);
    let mut took = Vec::new();
    // Until intervals become minutes, then ten minutes more, then ten that are measured.
    for number in 0..1440 + 120 + 120 {
        host.wait(5.0);
        ops.iter().for_each(|op| op.pass(&mut host, &mut random));
        host.device(&names[random.random_range(0..DRIVES)]).inflight.reads = 7;
        let snapshot = host.snapshot();
        if number < 1440 + 120 {
            store.record(&snapshot, host.boot);
        } else {
            took.push(recorded(&mut store, &snapshot, host.boot));
        }
    }
    let mean = took.iter().sum::<Duration>() / took.len() as u32;
    took.sort_unstable();
    let with = if has_breakdown { "with" } else { "without" };
    println!(
        "{DRIVES} drives {with} sizes and workloads: mean {mean:?}, median {:?}, longest {:?}",
        took[60], took[119]
    );
}

#[test]
#[ignore = "a measurement"]
fn without_sizes_and_workloads() {
    cost(false);
}

#[test]
#[ignore = "a measurement"]
fn with_sizes_and_workloads() {
    cost(true);
}
