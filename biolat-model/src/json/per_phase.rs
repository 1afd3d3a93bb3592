//! One value per phase, in the order of [`Phase`], as fields named after the phases.

use std::{fmt, marker::PhantomData};

use biolat_common::series::{PHASES, Phase};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{IgnoredAny, MapAccess, Visitor},
};

pub(crate) fn serialize<S: Serializer, T: Serialize>(
    values: &[T; PHASES],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Phase::ALL.iter().map(|phase| phase.name()).zip(values))
}

/// A missing phase gets its default value.
pub(crate) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<[T; PHASES], D::Error> {
    deserializer.deserialize_map(Phases(PhantomData))
}

struct Phases<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Phases<T> {
    type Value = [T; PHASES];

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("fields named after phases")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = std::array::from_fn(|_| T::default());
        while let Some(name) = map.next_key::<String>()? {
            match Phase::ALL.iter().position(|phase| phase.name() == name) {
                Some(phase) => values[phase] = map.next_value()?,
                None => _ = map.next_value::<IgnoredAny>()?,
            }
        }
        Ok(values)
    }
}
