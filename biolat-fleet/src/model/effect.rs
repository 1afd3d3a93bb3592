//! Defines the effects of events on a drive.

use super::drive_model::Op;

/// A change to a drive between two times, in seconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) change: Change,
}

/// The change that an effect makes.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// I/Os take longer, and the drive's throughput decreases.
    Slower(Slower),
    /// All I/Os take longer by this factor, but the drive's maximum throughput is unchanged.
    Stalled(f64),
    /// I/Os through one path, this share of all, take longer by the factor.
    Path { share: f64, factor: f64 },
    /// The load changes by this factor.
    Load(f64),
    /// The share of each size is multiplied by the size raised to this power.
    Sizes(f64),
    /// There is additional I/O.
    Extra(Extra),
}

/// A slowdown of some or all I/Os.
#[derive(Clone, Debug)]
pub(crate) struct Slower {
    pub(crate) factor: f64,
    /// The only op affected, if any.
    pub(crate) op: Option<Op>,
    /// Only I/Os larger than this are affected, or all if it is 0.
    pub(crate) above: u32,
    /// Whether the factor grows linearly from 1.
    pub(crate) is_rising: bool,
}

/// Additional I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extra {
    pub(crate) op: Op,
    pub(crate) bytes: u32,
    pub(crate) is_sequential: bool,
    pub(crate) rate: Rate,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Rate {
    /// I/Os per second.
    Ios(f64),
    /// Share of time that they keep the drive busy.
    Utilisation(f64),
}

/// The effects that act at one time.
pub(crate) struct Acting<'a> {
    effects: &'a [Effect],
    at: f64,
}

impl<'a> Acting<'a> {
    pub(crate) const fn new(effects: &'a [Effect], at: f64) -> Self {
        Self { effects, at }
    }

    fn acting(&self) -> impl Iterator<Item = &'a Effect> {
        let at = self.at;
        self.effects.iter().filter(move |effect| (effect.from..effect.to).contains(&at))
    }

    fn product(&self, factor: impl Fn(&Effect) -> Option<f64>) -> f64 {
        self.acting().filter_map(factor).product()
    }

    /// Returns the load factor.
    pub(crate) fn load(&self) -> f64 {
        self.product(|effect| if let Change::Load(factor) = effect.change { Some(factor) } else { None })
    }

    /// Returns the latency factor that also decreases the drive's throughput.
    pub(crate) fn slower(&self, op: Op, bytes: u32) -> f64 {
        self.product(|effect| {
            let Change::Slower(slower) = &effect.change else { return None };
            let is_affected =
                slower.op.is_none_or(|only| only == op) && (bytes > slower.above || slower.above == 0);
            let done = (self.at - effect.from) / (effect.to - effect.from);
            is_affected.then_some(1.0 + (slower.factor - 1.0) * if slower.is_rising { done } else { 1.0 })
        })
    }

    /// Returns the latency factor that leaves the drive's maximum throughput unchanged.
    pub(crate) fn stalled(&self) -> f64 {
        self.product(|effect| if let Change::Stalled(factor) = effect.change { Some(factor) } else { None })
    }

    /// Returns the share of I/Os through a slow path, and the latency factor.
    pub(crate) fn path(&self) -> Option<(f64, f64)> {
        self.acting().find_map(|effect| match effect.change {
            Change::Path { share, factor } => Some((share, factor)),
            _ => None,
        })
    }

    /// Returns the power to which a size is raised to weight its share.
    pub(crate) fn sizes(&self) -> f64 {
        self.acting()
            .filter_map(|effect| if let Change::Sizes(power) = effect.change { Some(power) } else { None })
            .sum()
    }

    /// Returns additional I/O.
    pub(crate) fn extra(&self) -> impl Iterator<Item = Extra> {
        self.acting()
            .filter_map(|effect| if let Change::Extra(extra) = effect.change { Some(extra) } else { None })
    }
}
