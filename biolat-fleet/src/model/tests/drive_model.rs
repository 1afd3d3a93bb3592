//! Tests of the drive models.

use crate::model::drive_model::{DISK, DriveModel, Op, QLC, SATA, TLC};

const MODELS: [&DriveModel; 4] = [&TLC, &QLC, &SATA, &DISK];

/// The latency of a single I/O is at least the time that the drive needs per I/O at full parallelism.
#[test]
fn latency_is_not_below_time_per_io_at_full_load() {
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
fn queueing_starts_small_and_is_bounded() {
    for model in MODELS {
        assert!(model.queueing(0.01) < 1.02 && model.queueing(0.9) > 3.0, "{}", model.name);
        assert!(model.queueing(1.0) < 30.0 && model.queueing(1.0) == model.queueing(7.0), "{}", model.name);
        assert!((0..100).map(|n| model.queueing(f64::from(n) / 100.0)).is_sorted());
    }
}
