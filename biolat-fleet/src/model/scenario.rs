//! Scenario files: which events occur, how often, for how long and how severe.

use std::str::FromStr;

use serde::Deserialize;

use super::{Kind, drive_model::Op};

/// What happens in a fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) events: Vec<Recipe>,
}

/// Events of one kind. Of a range, each octave is as likely as another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) kind: Kind,
    /// How many of them for a thousand drives; at least one.
    pub(crate) per_thousand_drives: f64,
    /// How long they take; at most to the end.
    pub(crate) hours: [f64; 2],
    /// Of the latency or, of an innocent event, of the load or of the sizes.
    #[serde(default = "no_factor")]
    pub(crate) factor: [f64; 2],
    /// When they begin, in shares of all the time.
    #[serde(default = "after_a_fifth")]
    pub(crate) begin: [f64; 2],
    /// `size`: the op.
    pub(crate) op: Option<Op>,
    /// `size`: only larger I/Os.
    #[serde(default)]
    pub(crate) above_kib: u32,
    /// `path`: the share of the I/Os; `firmware`: of the drives; `rebuild`, `scrub`: of the time that a drive is busy.
    #[serde(default = "a_third")]
    pub(crate) share: [f64; 2],
    /// `stalls`: the length of each.
    #[serde(default = "minutes")]
    pub(crate) stall_minutes: [f64; 2],
    /// `stalls`: from one to the next.
    #[serde(default = "quarters")]
    pub(crate) every_minutes: [f64; 2],
}

const fn no_factor() -> [f64; 2] {
    [1.0, 1.0]
}

const fn after_a_fifth() -> [f64; 2] {
    [0.2, 0.8]
}

const fn a_third() -> [f64; 2] {
    [0.3, 0.4]
}

const fn minutes() -> [f64; 2] {
    [1.0, 5.0]
}

const fn quarters() -> [f64; 2] {
    [5.0, 20.0]
}

impl Scenario {
    /// Nothing happens.
    pub(crate) fn none() -> Self {
        Self::default()
    }
}

impl FromStr for Scenario {
    type Err = yaml_serde::Error;

    fn from_str(yaml: &str) -> Result<Self, Self::Err> {
        yaml_serde::from_str(yaml)
    }
}
