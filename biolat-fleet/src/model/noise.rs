//! Noise that is correlated in time: a level that wanders, and bursts whose length and height have heavy tails.

use rand::RngExt as _;
use rand_distr::{Distribution as _, Exp1, Pareto, StandardNormal};

use super::Random;

/// A level that wanders around 0 and returns to it: an Ornstein-Uhlenbeck process, which is AR(1) at steps of any length.
pub(crate) struct Noise {
    value: f64,
    deviation: f64,
    /// After so many seconds the correlation has fallen to 1/e.
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

/// Bursts at random times: the shortest and lowest ones are the most frequent.
#[derive(Clone, Copy)]
pub(crate) struct BurstKind {
    /// Seconds between two bursts, on average.
    pub(crate) gap: f64,
    /// Seconds.
    pub(crate) shortest: f64,
    pub(crate) longest: f64,
    pub(crate) length_index: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
    pub(crate) height_index: f64,
}

pub(crate) struct Bursts {
    kind: BurstKind,
    /// Seconds until a burst begins or ends.
    pub(crate) left: f64,
    /// The factor of now: 1 between bursts.
    pub(crate) height: f64,
    pub(crate) is_burst: bool,
}

impl Bursts {
    pub(crate) fn new(kind: BurstKind, random: &mut Random) -> Self {
        let gap: f64 = Exp1.sample(random);
        Self { kind, left: kind.gap * gap, height: 1.0, is_burst: false }
    }

    /// The mean factor of the next seconds.
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

/// 1 on average in the logarithm.
pub(crate) fn log_normal(deviation: f64, random: &mut Random) -> f64 {
    let normal: f64 = StandardNormal.sample(random);
    (deviation * normal).exp()
}

/// Between the two, each octave as likely as another.
pub(crate) fn between([low, high]: [f64; 2], random: &mut Random) -> f64 {
    low * (high / low).powf(random.random::<f64>())
}
