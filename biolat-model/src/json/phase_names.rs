//! A set of phases as a list of names.

use biolat_common::series::{PHASES, Phase};
use serde::{Deserialize as _, Deserializer, Serializer};

pub(crate) fn serialize<S: Serializer>(phases: &[bool; PHASES], serializer: S) -> Result<S::Ok, S::Error> {
    let available = Phase::ALL.into_iter().filter(|&phase| phases[phase as usize]);
    serializer.collect_seq(available.map(Phase::name))
}

/// Ignores unknown names.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[bool; PHASES], D::Error> {
    let names = Vec::<String>::deserialize(deserializer)?;
    Ok(Phase::ALL.map(|phase| names.iter().any(|name| name == phase.name())))
}
