//! The models of drives.

use crate::model::drive_model::{DISK, DriveModel, Op, QLC, SATA, TLC};

const MODELS: [&DriveModel; 4] = [&TLC, &QLC, &SATA, &DISK];

/// A drive does not take less time for an I/O than its share of the bandwidth allows with all its parallelism.
#[test]
fn an_idle_drive_is_slower_than_a_busy_one_is_for_each_io() {
    for model in MODELS {
        for op in Op::ALL {
            for bytes in [4096, 65536, 1 << 20] {
                let model_of_op = model.op(op);
                assert!(
                    model_of_op.latency(bytes, true) > model_of_op.cost(bytes, true) * 0.9,
                    "{} {op:?} {bytes}",
                    model.name
                );
            }
        }
    }
}

#[test]
fn queueing_is_small_at_first_and_limited() {
    for model in MODELS {
        assert!(model.queueing(0.01) < 1.02 && model.queueing(0.9) > 3.0, "{}", model.name);
        assert!(model.queueing(1.0) < 30.0 && model.queueing(1.0) == model.queueing(7.0), "{}", model.name);
        assert!((0..100).map(|n| model.queueing(f64::from(n) / 100.0)).is_sorted());
    }
}
