//! Tests that all histograms count the same I/Os.

use biolat_common::series::Phase;
use rand::SeedableRng as _;

use crate::model::{
    Random,
    counters::{Counters, Queue},
    drive_model::Op,
};

#[test]
fn every_histogram_counts_all_ios() {
    let mut random = Random::seed_from_u64(5);
    let mut counters = Counters::default();
    assert!(counters.view(Op::Flush).is_none());
    for (bytes, cell, count) in [(4096, 60, 1000), (16384, 61, 500), (1 << 20, 90, 7), (0, 70, 1)] {
        counters.add(bytes, cell, count);
    }
    counters.queue(Queue { passage: 2e-6, waiting: 0.25, wait: 1e-3 }, &mut random);
    let view = counters.view(Op::Write).unwrap();
    assert_eq!(view.bytes, 4096 * 1000 + 16384 * 500 + (7 << 20));
    let sizes = view.sizes.unwrap();
    assert_eq!((sizes.requests.zero, sizes.requests.count()), (1, 1508));
    let bands: Vec<_> = sizes.bands.iter().map(|band| (&*band.size, band.device.count())).collect();
    assert_eq!(bands, [("le_4KiB", 1000), ("le_16KiB", 500), ("le_1MiB", 7)]);
    let of = |phase: Phase| &view.histograms[phase as usize];
    for phase in [Phase::Queue, Phase::Device, Phase::Total] {
        assert_eq!(of(phase).count(), 1508);
    }
    assert_eq!(of(Phase::Admission).count(), 0);
    assert_eq!(of(Phase::Queue).sum_ns + of(Phase::Device).sum_ns, of(Phase::Total).sum_ns);
    let waited = of(Phase::Queue).count_above(-13);
    assert!((320..440).contains(&waited), "a quarter of 1508 waited for 1 ms: {waited}");
}
