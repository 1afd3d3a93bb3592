//! Defines the services that run on nodes: their ops, sizes and load over time.

use super::drive_model::{DISK, DriveModel, Op, QLC, SATA, TLC};

const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
const HOUR: f64 = 3600.0;

/// A kind of workload on a node.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) name: &'static str,
    /// Percentage of nodes.
    pub(crate) frequency: u32,
    /// Possible pairs of drive models on a node: the model of most drives, then the model of the rest.
    pub(crate) models: &'static [(&'static DriveModel, &'static DriveModel)],
    /// Load, as a multiple of a drive's usual load.
    pub(crate) intensity: f64,
    /// Shares of the ops, in the order of [`Op`].
    pub(crate) ops: [f64; 3],
    /// Sizes of reads and their shares.
    pub(crate) reads: &'static [(u32, f64)],
    /// Sizes of writes and their shares.
    pub(crate) writes: &'static [(u32, f64)],
    /// Share of I/Os that need no seek.
    pub(crate) sequential: f64,
    /// Amplitude of the day-night cycle, in the natural logarithm of the load.
    daily: f64,
    /// Load factor on Saturday and Sunday.
    pub(crate) weekend: f64,
    /// How strongly its rate falls when latency rises: 0 if it never waits for its I/O, 1 if it does nothing but wait.
    pub(crate) elasticity: f64,
}

pub(crate) static SERVICES: [Service; 5] = [
    Service {
        name: "database",
        frequency: 30,
        models: &[(&TLC, &TLC), (&TLC, &SATA), (&SATA, &SATA)],
        intensity: 1.0,
        ops: [0.68, 0.29, 0.03],
        reads: &[
            (4 * KIB, 0.25),
            (16 * KIB, 0.55),
            (64 * KIB, 0.08),
            (96 * KIB, 0.03),
            (128 * KIB, 0.05),
            (256 * KIB, 0.03),
            (512 * KIB, 0.01),
        ],
        writes: &[
            (4 * KIB, 0.3),
            (16 * KIB, 0.45),
            (64 * KIB, 0.14),
            (128 * KIB, 0.07),
            (256 * KIB, 0.03),
            (MIB, 0.01),
        ],
        sequential: 0.1,
        daily: 0.5,
        weekend: 0.7,
        elasticity: 0.6,
    },
    Service {
        name: "objects",
        frequency: 30,
        models: &[(&DISK, &TLC), (&DISK, &DISK), (&QLC, &QLC)],
        intensity: 1.0,
        ops: [0.6, 0.38, 0.02],
        reads: &[
            (4 * KIB, 0.12),
            (64 * KIB, 0.12),
            (96 * KIB, 0.08),
            (128 * KIB, 0.14),
            (256 * KIB, 0.22),
            (512 * KIB, 0.14),
            (MIB, 0.14),
            (1280 * KIB, 0.04),
        ],
        writes: &[
            (4 * KIB, 0.2),
            (64 * KIB, 0.1),
            (128 * KIB, 0.12),
            (256 * KIB, 0.22),
            (512 * KIB, 0.14),
            (MIB, 0.18),
            (1280 * KIB, 0.04),
        ],
        sequential: 0.3,
        daily: 0.35,
        weekend: 0.85,
        elasticity: 0.0,
    },
    Service {
        name: "logs",
        frequency: 15,
        models: &[(&TLC, &TLC), (&DISK, &DISK), (&SATA, &SATA)],
        intensity: 1.2,
        ops: [0.1, 0.85, 0.05],
        reads: &[(4 * KIB, 0.1), (128 * KIB, 0.4), (256 * KIB, 0.2), (MIB, 0.3)],
        writes: &[
            (4 * KIB, 0.12),
            (32 * KIB, 0.1),
            (64 * KIB, 0.16),
            (128 * KIB, 0.24),
            (256 * KIB, 0.2),
            (MIB, 0.18),
        ],
        sequential: 0.8,
        daily: 0.4,
        weekend: 0.6,
        elasticity: 0.0,
    },
    Service {
        name: "archive",
        frequency: 10,
        models: &[(&DISK, &DISK), (&QLC, &QLC)],
        intensity: 0.01,
        ops: [0.7, 0.28, 0.02],
        reads: &[(4 * KIB, 0.2), (256 * KIB, 0.3), (MIB, 0.4), (1280 * KIB, 0.1)],
        writes: &[(4 * KIB, 0.2), (MIB, 0.6), (1280 * KIB, 0.2)],
        sequential: 0.5,
        daily: 0.1,
        weekend: 1.0,
        elasticity: 0.8,
    },
    Service {
        name: "mixed",
        frequency: 15,
        models: &[(&TLC, &SATA), (&SATA, &TLC), (&QLC, &TLC)],
        intensity: 0.7,
        ops: [0.55, 0.4, 0.05],
        reads: &[
            (4 * KIB, 0.4),
            (8 * KIB, 0.1),
            (16 * KIB, 0.14),
            (32 * KIB, 0.12),
            (64 * KIB, 0.1),
            (128 * KIB, 0.1),
            (256 * KIB, 0.03),
            (MIB, 0.01),
        ],
        writes: &[
            (4 * KIB, 0.5),
            (16 * KIB, 0.2),
            (64 * KIB, 0.14),
            (128 * KIB, 0.1),
            (512 * KIB, 0.05),
            (MIB, 0.01),
        ],
        sequential: 0.3,
        daily: 0.5,
        weekend: 0.5,
        elasticity: 0.4,
    },
];

impl Service {
    /// Returns the sizes of an op and their shares.
    pub(crate) const fn sizes(&self, op: Op) -> &'static [(u32, f64)] {
        match op {
            Op::Read => self.reads,
            Op::Write => self.writes,
            Op::Flush => &[(0, 1.0)],
        }
    }

    /// Returns the load factor at a time in seconds since the epoch, given the busiest hour of the day.
    pub(crate) fn load(&self, time: f64, busiest_hour: f64) -> f64 {
        let hours = time / HOUR - busiest_hour;
        let angle = hours / 24.0 * std::f64::consts::TAU;
        // The second harmonic makes the night longer than the peak.
        let daily = self.daily * (angle.cos() + 0.25 * (2.0 * angle).cos());
        // The epoch was a Thursday.
        let day = (time / HOUR / 24.0 + 3.0).rem_euclid(7.0);
        daily.exp() * if day >= 5.0 { self.weekend } else { 1.0 }
    }
}
