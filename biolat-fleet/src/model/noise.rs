//! Generates noise that is correlated in time: a wandering level, and bursts with heavy-tailed lengths and heights.

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp1, Pareto, StandardNormal};

use super::Random;

/// A level that wanders around 0: an Ornstein-Uhlenbeck process, which is AR(1) at steps of any length.
pub(crate) struct Noise {
    value: f64,
    deviation: f64,
    /// Seconds after which the correlation has fallen to 1/e.
    memory: f64,
}

impl Noise {
    pub(crate) fn new(deviation: f64, memory: f64, random: &mut Random) -> Self {
        let normal: f64 = StandardNormal.sample(random);
        Self { value: deviation * normal, deviation, memory }
    }

    pub(crate) fn advance(&mut self, seconds: f64, random: &mut Random) -> f64 {
        let kept = (-seconds / self.memory).exp();
        let normal: f64 = StandardNormal.sample(random);
        self.value = kept * self.value + self.deviation * (1.0 - kept * kept).sqrt() * normal;
        self.value
    }
}

/// Parameters of bursts at random times. The shortest and lowest bursts are the most frequent.
#[derive(Clone, Copy)]
pub(crate) struct BurstKind {
    /// Mean time between bursts, in seconds.
    pub(crate) gap: f64,
    /// Shortest burst, in seconds.
    pub(crate) shortest: f64,
    /// Longest burst, in seconds.
    pub(crate) longest: f64,
    /// Tail index of the length.
    pub(crate) length_index: f64,
    /// Lowest factor.
    pub(crate) lowest: f64,
    /// Highest factor.
    pub(crate) highest: f64,
    /// Tail index of the factor.
    pub(crate) height_index: f64,
}

pub(crate) struct Bursts {
    kind: BurstKind,
    /// Seconds until the burst ends or the next one begins.
    pub(crate) left: f64,
    /// Current factor, 1 between bursts.
    pub(crate) height: f64,
    pub(crate) is_burst: bool,
}

impl Bursts {
    pub(crate) fn new(kind: BurstKind, random: &mut Random) -> Self {
        let gap: f64 = Exp1.sample(random);
        Self { kind, left: kind.gap * gap, height: 1.0, is_burst: false }
    }

    /// Advances by `seconds` and returns the mean factor over that time.
    pub(crate) fn advance(&mut self, seconds: f64, random: &mut Random) -> f64 {
        let (mut rest, mut sum) = (seconds, 0.0);
        while self.left < rest {
            sum += self.left * self.height;
            rest -= self.left;
            self.change(random);
        }
        self.left -= rest;
        (sum + rest * self.height) / seconds
    }

    /// Ends the burst, or begins the next one.
    pub(crate) fn change(&mut self, random: &mut Random) {
        let kind = self.kind;
        self.is_burst = !self.is_burst;
        if self.is_burst {
            self.left = pareto(kind.shortest, kind.length_index, random).min(kind.longest);
            self.height = pareto(kind.lowest, kind.height_index, random).min(kind.highest);
        } else {
            let gap: f64 = Exp1.sample(random);
            self.left = kind.gap * gap;
            self.height = 1.0;
        }
    }
}

fn pareto(lowest: f64, index: f64, random: &mut Random) -> f64 {
    // Scale and shape are positive constants.
    Pareto::new(lowest, index).map_or(lowest, |pareto| pareto.sample(random))
}

/// Draws a log-normal factor with a median of 1.
pub(crate) fn log_normal(deviation: f64, random: &mut Random) -> f64 {
    let normal: f64 = StandardNormal.sample(random);
    (deviation * normal).exp()
}

/// Draws a number from a range, with a log-uniform distribution.
pub(crate) fn between([low, high]: [f64; 2], random: &mut Random) -> f64 {
    low * (high / low).powf(random.random::<f64>())
}
