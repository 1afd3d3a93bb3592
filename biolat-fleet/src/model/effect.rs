//! What an event does to one drive.

use super::drive_model::Op;

/// From and to seconds since the epoch.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) change: Change,
}

#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// I/Os take longer, and the drive does fewer of them.
    Slower(Slower),
    /// All I/Os take longer, but the drive could do as many.
    Stalled(f64),
    /// A share of all I/Os takes longer: those through one path.
    Path { share: f64, factor: f64 },
    /// There is more load.
    Load(f64),
    /// The shares of sizes change by this power of the size.
    Sizes(f64),
    /// There is other I/O, too.
    Extra(Extra),
}

/// I/Os that take longer.
#[derive(Clone, Debug)]
pub(crate) struct Slower {
    pub(crate) factor: f64,
    /// Of this op only.
    pub(crate) op: Option<Op>,
    /// Larger than this only.
    pub(crate) above: u32,
    /// Whether the factor grows from 1 on, evenly.
    pub(crate) is_rising: bool,
}

/// Other I/O.
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
    /// The share of time that they keep the drive busy.
    Utilisation(f64),
}

/// The effects of one time.
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

    /// The factor of the load.
    pub(crate) fn load(&self) -> f64 {
        self.product(|effect| if let Change::Load(factor) = effect.change { Some(factor) } else { None })
    }

    /// The factor of latency with which the drive does fewer I/Os, too.
    pub(crate) fn slower(&self, op: Op, bytes: u32) -> f64 {
        self.product(|effect| {
            let Change::Slower(slower) = &effect.change else { return None };
            let is_meant =
                slower.op.is_none_or(|only| only == op) && (bytes > slower.above || slower.above == 0);
            let done = (self.at - effect.from) / (effect.to - effect.from);
            is_meant.then_some(1.0 + (slower.factor - 1.0) * if slower.is_rising { done } else { 1.0 })
        })
    }

    /// The factor of latency with which the drive could do as many.
    pub(crate) fn stalled(&self) -> f64 {
        self.product(|effect| if let Change::Stalled(factor) = effect.change { Some(factor) } else { None })
    }

    /// The share of I/Os through a path that is slower, and the factor.
    pub(crate) fn path(&self) -> Option<(f64, f64)> {
        self.acting().find_map(|effect| match effect.change {
            Change::Path { share, factor } => Some((share, factor)),
            _ => None,
        })
    }

    /// The power of the size by which shares change.
    pub(crate) fn sizes(&self) -> f64 {
        self.acting()
            .filter_map(|effect| if let Change::Sizes(power) = effect.change { Some(power) } else { None })
            .sum()
    }

    /// Other I/O.
    pub(crate) fn extra(&self) -> impl Iterator<Item = Extra> {
        self.acting()
            .filter_map(|effect| if let Change::Extra(extra) = effect.change { Some(extra) } else { None })
    }
}
