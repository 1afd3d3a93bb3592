//! Reads the thresholds of BlockDeviceFailSlow from the mixin.

use std::collections::HashMap;

use anyhow::{Context as _, Result};

/// The `failSlow…` values in `config.libsonnet`, which explains each.
#[derive(Clone, Debug)]
pub(crate) struct Thresholds {
    pub(crate) factor: f32,
    pub(crate) spreads: f32,
    pub(crate) size_factor: f32,
    pub(crate) size_spreads: f32,
    pub(crate) stall_factor: f32,
    pub(crate) stall_spreads: f32,
    pub(crate) node_factor: f32,
    pub(crate) node_spreads: f32,
    pub(crate) overload_inflight: f32,
    pub(crate) other_work_factor: f32,
    pub(crate) min_spread: f32,
    pub(crate) near_spread: f32,
    pub(crate) min_drives: usize,
    pub(crate) min_siblings: usize,
    pub(crate) quiet_ios: f32,
    pub(crate) least_load: f32,
}

impl Thresholds {
    /// Returns the thresholds of the rules in `deploy/prometheus`.
    pub(crate) fn deployed() -> Result<Self> {
        Self::read(include_str!("../../../deploy/mixin/config.libsonnet"))
    }

    fn read(config: &str) -> Result<Self> {
        let number = |line: &str| {
            let (name, value) = line.trim().strip_prefix("failSlow")?.split_once(": ")?;
            Some((name.to_owned(), value.strip_suffix(',')?.parse().ok()?))
        };
        let numbers: HashMap<String, f32> = config.lines().filter_map(number).collect();
        let get = |name: &str| {
            let number = numbers.get(name).copied();
            number.with_context(|| format!("config.libsonnet has no number failSlow{name}"))
        };
        Ok(Self {
            factor: get("Factor")?,
            spreads: get("Spreads")?,
            size_factor: get("SizeFactor")?,
            size_spreads: get("SizeSpreads")?,
            stall_factor: get("StallFactor")?,
            stall_spreads: get("StallSpreads")?,
            node_factor: get("NodeFactor")?,
            node_spreads: get("NodeSpreads")?,
            overload_inflight: get("OverloadInflight")?,
            other_work_factor: get("OtherWorkFactor")?,
            min_spread: get("MinSpread")?,
            near_spread: get("NearSpread")?,
            min_drives: get("MinDrives")? as usize,
            min_siblings: get("MinSiblings")? as usize,
            quiet_ios: get("QuietIOs")?,
            least_load: get("LeastLoad")?,
        })
    }
}
