//! Reads scenario files, which define the kinds of events and their frequency, duration and severity.

use std::str::FromStr;

use serde::Deserialize;

use super::{Kind, drive_model::Op};

/// Events in a fleet.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) events: Vec<Recipe>,
}

/// Events of one kind. Values are drawn from ranges with a log-uniform distribution, except for `begin`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    pub(crate) kind: Kind,
    /// Number of events per thousand drives, but at least one event in total.
    pub(crate) per_thousand_drives: f64,
    /// Duration. No event outlasts the run.
    pub(crate) hours: [f64; 2],
    /// Multiplier of the latency or, for an innocent event, of the load or the sizes.
    #[serde(default = "default_factor")]
    pub(crate) factor: [f64; 2],
    /// Start time, as a fraction of the run.
    #[serde(default = "default_begin")]
    pub(crate) begin: [f64; 2],
    /// `size`: the affected op.
    pub(crate) op: Option<Op>,
    /// `size`: only I/Os above this size are affected.
    #[serde(default)]
    pub(crate) above_kib: u32,
    /// `path`: share of I/Os; `firmware`: share of drives; `rebuild`, `scrub`: share of time that they keep a drive busy;
    /// `wakes`: I/Os per second.
    #[serde(default = "default_share")]
    pub(crate) share: [f64; 2],
    /// `stalls`: length of each stall.
    #[serde(default = "default_stall_minutes")]
    pub(crate) stall_minutes: [f64; 2],
    /// `stalls`: time from the end of one stall to the start of the next.
    #[serde(default = "default_every_minutes")]
    pub(crate) every_minutes: [f64; 2],
}

const fn default_factor() -> [f64; 2] {
    [1.0, 1.0]
}

const fn default_begin() -> [f64; 2] {
    [0.2, 0.8]
}

const fn default_share() -> [f64; 2] {
    [0.3, 0.4]
}

const fn default_stall_minutes() -> [f64; 2] {
    [1.0, 5.0]
}

const fn default_every_minutes() -> [f64; 2] {
    [5.0, 20.0]
}

impl Scenario {
    /// Returns a scenario without events.
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
