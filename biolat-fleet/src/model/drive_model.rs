//! Defines the drive models: latency and throughput by op and size. `docs/fleet-model.md` gives the sources of the figures.

use serde::Deserialize;

use super::latency::Tail;

/// Maximum utilisation of a drive.
pub(crate) const MAX_UTILISATION: f64 = 0.95;

/// An op of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    Read,
    Write,
    Flush,
}

impl Op {
    pub(crate) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Flush];

    /// Returns the kernel's name in lower case.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Flush => "flush",
        }
    }
}

/// A drive model.
#[derive(Debug)]
pub(crate) struct DriveModel {
    pub(crate) name: &'static str,
    pub(crate) transport: &'static str,
    pub(crate) scheduler: &'static str,
    pub(crate) rotational: bool,
    /// Whether it has a volatile cache that the kernel flushes.
    pub(crate) is_flushed: bool,
    /// Share of time that it is usually busy.
    pub(crate) usual_utilisation: f64,
    /// Maximum number of requests at a time.
    pub(crate) depth: f64,
    /// Growth of latency with utilisation: the gain and the power. The more a drive does in parallel, the higher the power.
    pub(crate) queueing: (f64, i32),
    /// Factor by which writes slow down I/O, reads most of all.
    pub(crate) interference: f64,
    /// Ops in the order of [`Op`].
    pub(crate) ops: [OpModel; 3],
}

/// Latency and throughput of one op.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpModel {
    /// Median latency of the smallest I/O on an idle drive, in seconds.
    base: f64,
    /// Transfer rate of a single I/O, in bytes per second.
    stream: f64,
    /// Maximum I/Os per second of the drive.
    ios: f64,
    /// Maximum bytes per second of the drive.
    bandwidth: f64,
    /// Standard deviation of the latency, in octaves.
    pub(crate) spread: f64,
    pub(crate) tail: Tail,
    /// Median latency of an I/O that needs no seek because it is sequential or cached, in seconds.
    without_seek: Option<f64>,
}

impl DriveModel {
    pub(crate) const fn op(&self, op: Op) -> &OpModel {
        &self.ops[op as usize]
    }

    /// Returns the latency factor at a utilisation from 0 to 1. It is bounded, because queues are.
    pub(crate) fn queueing(&self, utilisation: f64) -> f64 {
        let (gain, power) = self.queueing;
        let utilisation = utilisation.min(MAX_UTILISATION);
        1.0 + gain * utilisation.powi(power) / (1.0 - utilisation)
    }
}

impl OpModel {
    /// Returns the median latency on an idle drive, in seconds.
    pub(crate) fn latency(&self, bytes: u32, is_sequential: bool) -> f64 {
        let base = self.without_seek.filter(|_| is_sequential).unwrap_or(self.base);
        base + f64::from(bytes) / self.stream
    }

    /// Returns how long one I/O keeps the drive busy, in seconds.
    pub(crate) fn cost(&self, bytes: u32, is_sequential: bool) -> f64 {
        let transfer = f64::from(bytes) / self.bandwidth;
        match self.without_seek {
            Some(_) if is_sequential => transfer.max(1e-5),
            Some(_) => 1.0 / self.ios + transfer,
            None => transfer.max(1.0 / self.ios),
        }
    }
}

const fn tail(share: f64, from: f64, index: f64) -> Tail {
    Tail { share, from, to: 100.0, index }
}

const fn flash(base: f64, stream: f64, ios: f64, bandwidth: f64, spread: f64, tail: Tail) -> OpModel {
    OpModel { base, stream, ios, bandwidth, spread, tail, without_seek: None }
}

/// NVMe flash with three bits per cell.
pub(crate) static TLC: DriveModel = DriveModel {
    name: "Synthetic TLC NVMe 7.68TB",
    transport: "pcie",
    scheduler: "none",
    rotational: false,
    is_flushed: false,
    usual_utilisation: 0.01,
    depth: 256.0,
    queueing: (0.6, 3),
    interference: 1.0,
    ops: [
        flash(92e-6, 2.2e9, 900e3, 6.5e9, 0.25, tail(0.002, 2.0, 2.5)),
        flash(21e-6, 3.0e9, 200e3, 3.5e9, 0.3, tail(0.011, 3.0, 1.5)),
        flash(21e-6, 3.0e9, 200e3, 3.5e9, 0.3, tail(0.011, 3.0, 1.5)),
    ],
};

/// NVMe flash with four bits per cell.
pub(crate) static QLC: DriveModel = DriveModel {
    name: "Synthetic QLC NVMe 30.7TB",
    transport: "pcie",
    scheduler: "none",
    rotational: false,
    is_flushed: false,
    usual_utilisation: 0.03,
    depth: 256.0,
    queueing: (0.7, 3),
    interference: 2.0,
    ops: [
        flash(115e-6, 1.8e9, 971e3, 7.0e9, 0.3, tail(0.004, 2.0, 2.0)),
        flash(30e-6, 1.5e9, 120e3, 3.0e9, 0.4, tail(0.02, 4.0, 1.4)),
        flash(30e-6, 1.5e9, 120e3, 3.0e9, 0.4, tail(0.02, 4.0, 1.4)),
    ],
};

/// SATA flash.
pub(crate) static SATA: DriveModel = DriveModel {
    name: "Synthetic SATA SSD 3.84TB",
    transport: "sata",
    scheduler: "mq-deadline",
    rotational: false,
    is_flushed: true,
    usual_utilisation: 0.06,
    depth: 32.0,
    queueing: (0.8, 2),
    interference: 2.0,
    ops: [
        flash(110e-6, 480e6, 72e3, 500e6, 0.25, tail(0.002, 2.0, 2.5)),
        flash(52e-6, 470e6, 33e3, 490e6, 0.3, tail(0.011, 3.0, 1.5)),
        flash(900e-6, 470e6, 5e3, 490e6, 0.6, tail(0.02, 3.0, 1.5)),
    ],
};

const fn spinning(ios: f64, spread: f64, without_seek: f64) -> OpModel {
    OpModel {
        base: 12.4e-3,
        stream: 250e6,
        ios,
        bandwidth: 270e6,
        spread,
        tail: tail(0.001, 4.0, 1.2),
        without_seek: Some(without_seek),
    }
}

/// A spinning disk.
pub(crate) static DISK: DriveModel = DriveModel {
    name: "Synthetic disk 7200 rpm 18TB",
    transport: "sas",
    scheduler: "mq-deadline",
    rotational: true,
    is_flushed: true,
    usual_utilisation: 0.25,
    depth: 32.0,
    queueing: (0.8, 1),
    interference: 0.5,
    ops: [spinning(152.0, 0.55, 0.4e-3), spinning(192.0, 0.65, 0.2e-3), spinning(60.0, 0.6, 12e-3)],
};
